//! An in-memory Kubernetes API server.
