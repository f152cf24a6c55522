//! The kinds as Kubernetes serves them.
