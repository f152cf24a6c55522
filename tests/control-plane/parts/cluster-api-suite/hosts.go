package main

import (
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/test/framework"
)

// By these labels the program that started this one is asked for hosts, and answers.
const (
	hostsLabel = "lab/hosts"
	readyLabel = "lab/ready"
)

// The namespace of the spec that runs.
var namespace string

// Has hosts registered in the namespace of a spec, before its cluster is made.
func withHosts(count int) func(framework.ClusterProxy, string) {
	return func(proxy framework.ClusterProxy, name string) {
		namespace = name
		By("Waiting until " + strconv.Itoa(count) + " hosts are available")
		api := proxy.GetClient()
		found := &corev1.Namespace{}
		found.Name = name
		patch := `{"metadata":{"labels":{"` + hostsLabel + `":"` + strconv.Itoa(count) + `"}}}`
		Expect(api.Patch(ctx, found, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(api.Get(ctx, types.NamespacedName{Name: name}, found)).To(Succeed())
			g.Expect(found.Labels).To(HaveKey(readyLabel))
		}).WithTimeout(5*time.Minute).WithPolling(time.Second).Should(Succeed(), "hosts have not registered in "+name)
	}
}

// A spec of the suite, and what must hold after each: its namespace goes, so no finalizer of ours holds an object.
func describe(text string, spec func()) bool {
	return Describe(text, func() {
		spec()
		AfterEach(func() {
			api := management.GetClient()
			Eventually(func() bool {
				return apierrors.IsNotFound(api.Get(ctx, types.NamespacedName{Name: namespace}, &corev1.Namespace{}))
			}).WithTimeout(3*time.Minute).WithPolling(time.Second).Should(BeTrue(), "something stays in "+namespace)
		})
	})
}
