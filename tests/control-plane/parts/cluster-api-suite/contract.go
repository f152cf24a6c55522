package main

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"
)

const (
	machineFinalizer   = "baremetalmachine.infrastructure.cluster.x-k8s.io"
	inventoryFinalizer = "machineinventory.elemental.cattle.io"
	ownerAnnotation    = "baremetal.alauda.io/owner-baremetalmachine"
)

type (
	owners     = map[string]func(types.NamespacedName, []metav1.OwnerReference) error
	finalizers = map[string]func(types.NamespacedName) []string
)

func owner(kind string, controller bool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Controller: &controller,
	}
}

func exactly(wanted ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
	return func(_ types.NamespacedName, found []metav1.OwnerReference) error {
		return framework.HasExactOwners(found, wanted...)
	}
}

// Who owns our objects. Hosts and what they registered with belong to no cluster.
func ourOwners(hasClass bool) owners {
	return owners{
		"BaremetalCluster":         exactly(owner("Cluster", hasClass)),
		"BaremetalMachine":         exactly(owner("Machine", true)),
		"BaremetalMachineTemplate": ownedByClusterOrClass,
		"BaremetalClusterTemplate": exactly(owner("ClusterClass", false)),
		"MachineInventory":         exactly(),
		"MachineInventoryPool":     exactly(),
		"MachineRegistration":      exactly(),
		"SeedImage":                exactly(),
		"Secret":                   secretOwners,
	}
}

func ownedByClusterOrClass(_ types.NamespacedName, found []metav1.OwnerReference) error {
	return framework.HasOneOfExactOwners(found,
		[]metav1.OwnerReference{owner("Cluster", false)}, []metav1.OwnerReference{owner("ClusterClass", false)})
}

// Plans and tokens have no owner; all other Secrets have the one that Cluster API's own rule names.
func secretOwners(name types.NamespacedName, found []metav1.OwnerReference) error {
	if strings.HasPrefix(name.Name, "host-") || strings.HasSuffix(name.Name, "-registration-token") {
		return framework.HasExactOwners(found)
	}
	return framework.KubernetesReferenceAssertions["Secret"](name, found)
}

// A host is held while a machine owns it.
var ourFinalizers = finalizers{
	"BaremetalMachine": func(types.NamespacedName) []string { return []string{machineFinalizer} },
	"MachineInventory": func(name types.NamespacedName) []string {
		inventory := &unstructured.Unstructured{}
		inventory.SetAPIVersion("elemental.cattle.io/v1beta1")
		inventory.SetKind("MachineInventory")
		if err := management.GetClient().Get(ctx, name, inventory); err != nil {
			return []string{err.Error()}
		}
		if inventory.GetAnnotations()[ownerAnnotation] == "" {
			return nil
		}
		return []string{inventoryFinalizer}
	},
}

// What Cluster API demands of all objects of a cluster, checked while the cluster runs: owner references and
// finalizers come back when they are removed, and nothing is written without need.
func checkContract(hasClass bool) func(framework.ClusterProxy, string, string) {
	return func(proxy framework.ClusterProxy, namespace, name string) {
		own := cluster.FilterClusterObjectsWithNameFilter(name)
		filter := func(object unstructured.Unstructured) bool {
			// The provider's own Secrets are no part of a cluster.
			return own(object) && (object.GetNamespace() == "" || object.GetNamespace() == namespace)
		}
		coreFinalizers := framework.CoreFinalizersAssertionWithLegacyClusters
		if hasClass {
			coreFinalizers = framework.CoreFinalizersAssertionWithClassyClusters
		}
		rules := []owners{
			framework.CoreOwnerReferenceAssertion,
			framework.ExpOwnerReferenceAssertions,
			framework.KubeadmBootstrapOwnerReferenceAssertions,
			framework.KubeadmControlPlaneOwnerReferenceAssertions(hasClass),
			ourOwners(hasClass),
		}
		By("Checking that owner references are resilient")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, name, filter, rules...)
		By("Checking that owner references are updated to the correct API version")
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, name, filter, rules...)
		By("Checking that finalizers are resilient")
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, name, filter,
			coreFinalizers,
			framework.KubeadmControlPlaneFinalizersAssertion,
			framework.ExpFinalizersAssertion,
			ourFinalizers,
		)
		By("Checking that resourceVersions are stable")
		framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
			ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: filter,
		})
	}
}
