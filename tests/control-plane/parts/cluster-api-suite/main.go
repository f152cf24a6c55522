// Command cluster-api-suite runs the specs of Cluster API's own test suite against a management cluster that runs
// already. It makes no cluster itself: `make e2e-capi` starts what it needs.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
)

// Every wait of a spec has its own deadline; this one ends a suite that hangs.
const deadline = 4 * time.Hour

var (
	ctx              = ctrl.SetupSignalHandler()
	clusterctlConfig string
	artifacts        string
	management       framework.ClusterProxy
	config           = &clusterctl.E2EConfig{
		Variables: map[string]string{
			// Keys of the image catalog.
			e2e.KubernetesVersion:            "v1.36.3",
			e2e.KubernetesVersionUpgradeFrom: "v1.36.3",
			e2e.KubernetesVersionUpgradeTo:   "v1.36.4",
		},
		Intervals: map[string][]string{
			"default/wait-cluster":                    {"5m", "2s"},
			"default/wait-control-plane":              {"10m", "2s"},
			"default/wait-worker-nodes":               {"10m", "2s"},
			"default/wait-machine-pool-nodes":         {"5m", "2s"},
			"default/wait-delete-cluster":             {"5m", "2s"},
			"default/wait-machine-upgrade":            {"10m", "2s"},
			"default/wait-control-plane-upgrade":      {"10m", "2s"},
			"default/wait-machine-deployment-upgrade": {"10m", "2s"},
			"default/wait-machine-pool-upgrade":       {"5m", "2s"},
			"default/wait-nodes-ready":                {"5m", "2s"},
			"default/wait-machine-remediation":        {"5m", "2s"},
		},
	}
)

// What a program has in place of testing.T; its exit code tells the rest.
type reporter struct{}

func (reporter) Fail() {}

func main() {
	kubeconfig := flag.String("management", "", "kubeconfig of the management cluster")
	flag.StringVar(&clusterctlConfig, "clusterctl-config", "", "names the repositories of the providers")
	flag.StringVar(&artifacts, "artifacts", "", "directory for logs and for objects of clusters")
	flag.Parse()

	ctrl.SetLogger(klog.Background())
	gomega.RegisterFailHandler(ginkgo.Fail)
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	management = framework.NewClusterProxy("management", *kubeconfig, scheme)

	suite, report := ginkgo.GinkgoConfiguration()
	suite.Timeout = deadline
	if !ginkgo.RunSpecs(reporter{}, "Cluster API's own specs", suite, report) {
		os.Exit(1)
	}
}
