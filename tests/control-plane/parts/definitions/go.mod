module parts.invalid/definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.17.2
	github.com/prometheus-operator/prometheus-operator v0.82.0
	sigs.k8s.io/cluster-api-ipam-provider-in-cluster v1.0.3
	sigs.k8s.io/gateway-api v1.6.3
)
