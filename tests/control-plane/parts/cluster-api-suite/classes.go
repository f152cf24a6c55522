package main

import (
	"bytes"
	"maps"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/util/yaml"
)

var _ = describe("Quick start with a ClusterClass", func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: ptr.To(withClass),
			PostNamespaceCreated:    withHosts(2),
			PostMachinesProvisioned: checkContract(true),
		}
	})
})

var _ = describe("Changes of a ClusterClass", func() {
	e2e.ClusterClassChangesSpec(ctx, func() e2e.ClusterClassChangesSpecInput {
		return e2e.ClusterClassChangesSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: withClass,
			PostNamespaceCreated: withHosts(3),
			ModifyControlPlaneFields: map[string]any{
				"spec.kubeadmConfigSpec.verbosity": int64(4),
			},
			ModifyMachineDeploymentBootstrapConfigTemplateFields: map[string]any{
				"spec.template.spec.verbosity": int64(4),
			},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{
				"spec.template.spec.allocationPolicy": "Ordered",
			},
		}
	})
})

var _ = describe("Rollout of a ClusterClass", func() {
	e2e.ClusterClassRolloutSpec(ctx, func() e2e.ClusterClassRolloutSpecInput {
		return e2e.ClusterClassRolloutSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: withClass + "-taints",
			PostNamespaceCreated:           withHosts(4),
			FilterMetadataBeforeValidation: withoutOurs,
		}
	})
})

// Our machines name their host.
func withoutOurs(object client.Object) clusterv1.ObjectMeta {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, "baremetal.cluster.io/machine-inventory")
	return clusterv1.ObjectMeta{Labels: object.GetLabels(), Annotations: annotations}
}

var _ = describe("Deletion of a cluster with a ClusterClass", func() {
	e2e.ClusterDeletionSpec(ctx, func() e2e.ClusterDeletionSpecInput {
		return e2e.ClusterDeletionSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: ptr.To(withClass),
			ControlPlaneMachineCount: ptr.To[int64](3),
			PostNamespaceCreated:     withHosts(4),
			ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
				{ObjectFilter: isOfWorkers, BlockingObjectFilter: isKind("Machine")},
				{ObjectFilter: isOfControlPlane, BlockingObjectFilter: isKind("Machine")},
				{ObjectFilter: isKind("BaremetalCluster"), BlockingObjectFilter: isKind("BaremetalCluster")},
			},
		}
	})
})

func isKind(kind string) func(corev1.ObjectReference, []metav1.OwnerReference) bool {
	return func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool { return object.Kind == kind }
}

func isOfWorkers(object corev1.ObjectReference, owners []metav1.OwnerReference) bool {
	return object.Kind == "MachineDeployment" || object.Kind == "MachineSet" ||
		object.Kind == "Machine" && isOwnedBy("MachineSet", owners)
}

func isOfControlPlane(object corev1.ObjectReference, owners []metav1.OwnerReference) bool {
	return object.Kind == "KubeadmControlPlane" ||
		object.Kind == "Machine" && isOwnedBy("KubeadmControlPlane", owners)
}

func isOwnedBy(kind string, owners []metav1.OwnerReference) bool {
	for _, owner := range owners {
		if owner.Kind == kind {
			return true
		}
	}
	return false
}

// One API server stands for all control planes, so there is one cluster.
var _ = describe("Scale of clusters without upgrade", func() {
	e2e.ScaleSpec(ctx, func() e2e.ScaleSpecInput {
		return e2e.ScaleSpecInput{
			E2EConfig: config, ClusterctlConfigPath: clusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: artifacts, InfrastructureProvider: provider, Flavor: ptr.To(withClass),
			ClusterCount:                     ptr.To[int64](1),
			MachineDeploymentCount:           ptr.To[int64](2),
			WorkerPerMachineDeploymentCount:  ptr.To[int64](1),
			PostNamespaceCreated:             withHosts(3),
			PostScaleClusterNamespaceCreated: createForCluster,
			SkipUpgrade:                      true,
		}
	})
})

// The spec gives its cluster a name, but not what the template has beside the Cluster: that is made again with the
// name, and not left without, since two pools would have the same hosts.
func createForCluster(
	proxy framework.ClusterProxy, namespace, name string, class, template []byte,
) ([]byte, []byte) {
	const placeholder = "scale-cluster-name-placeholder"
	placed := bytes.ReplaceAll(class, []byte("scale-cluster-namespace-placeholder"), []byte(namespace))
	objects, err := yaml.ToUnstructured(placed)
	Expect(err).ToNot(HaveOccurred())
	for _, object := range objects {
		if strings.HasPrefix(object.GetName(), placeholder) {
			Expect(proxy.GetClient().Delete(ctx, &object)).To(Succeed())
		}
	}
	Expect(proxy.CreateOrUpdate(ctx, bytes.ReplaceAll(placed, []byte(placeholder), []byte(name)))).To(Succeed())
	return class, template
}
