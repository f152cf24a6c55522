//! The only code that writes to Kubernetes.
//!
//! Every change of ownership or plan is one write with a `resourceVersion`
//! precondition: leader election is for economy, never for safety.

pub mod claim;
pub mod plan;
pub mod registration;
pub mod report;
pub mod status;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Class {
    /// Somebody else wrote first: look again now.
    Conflict,
    /// Look again later, with backoff.
    Transient,
    /// Looking again is of no use until something changes.
    Terminal,
}

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {kind} {name}")]
pub struct StoreError {
    /// What was tried.
    pub verb: &'static str,
    /// On which kind.
    pub kind: &'static str,
    /// On which object.
    pub name: String,
    /// Why it failed.
    #[source]
    pub source: Box<kube::Error>,
}

impl StoreError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        class(&self.source)
    }

    pub(crate) fn of(verb: &'static str, kind: &'static str, name: &str) -> impl FnOnce(kube::Error) -> Self {
        let name = name.to_owned();
        move |source| Self { verb, kind, name, source: Box::new(source) }
    }
}

/// What to do about an error of Kubernetes.
#[must_use]
pub fn class(error: &kube::Error) -> Class {
    match error {
        kube::Error::Api(status) => match status.code {
            // 404: somebody deleted it meanwhile, and the next look sees that.
            404 | 409 => Class::Conflict,
            400 | 403 | 405 | 413 | 415 | 422 => Class::Terminal,
            _ => Class::Transient,
        },
        _ => Class::Transient,
    }
}
