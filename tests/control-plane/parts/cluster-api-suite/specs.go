package main

import (
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/test/e2e"
)

// Flavors that are made of the provider's own templates.
const (
	plain      = ""
	withTaints = "kcp-md-taints"
	withClass  = "topology"
)

var provider = ptr.To("baremetal")

var _ = describe("Quick start", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider,
			PostNamespaceCreated:    withHosts(2),
			PostMachinesProvisioned: checkContract(false),
		}
	})
})

var _ = describe("Scale of a MachineDeployment", func() {
	e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider,
			PostNamespaceCreated: withHosts(4),
		}
	})
})

var _ = describe("Rollout of a MachineDeployment and in-place changes", func() {
	e2e.KCPAndMachineDeploymentRolloutSpec(ctx, func() e2e.KCPAndMachineDeploymentRolloutSpecInput {
		return e2e.KCPAndMachineDeploymentRolloutSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: withTaints,
			PostNamespaceCreated: withHosts(2),
		}
	})
})

var _ = describe("Remediation of a MachineDeployment", func() {
	e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider,
			PostNamespaceCreated: withHosts(3),
		}
	})
})

// The single control plane is rolled to another host, the worker to the same one.
var _ = describe("Upgrade of control plane and workers", func() {
	e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
		return e2e.ClusterUpgradeConformanceSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: ptr.To(plain),
			WorkerMachineCount:   ptr.To[int64](1),
			PostNamespaceCreated: withHosts(3),
			// It runs pods.
			SkipConformanceTests: true,
		}
	})
})
