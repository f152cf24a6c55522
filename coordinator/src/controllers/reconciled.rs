//! A kind whose objects a controller reconciles.

use std::sync::Arc;

use kube::Resource;
use kube::runtime::controller::Action;

use super::context::Context;
use crate::store::StoreError;
use crate::watch::Watched;

/// The error that ended a reconcile.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum Failure {
    /// The object does not show the error yet.
    Unshown(#[from] StoreError),
    /// The object shows the error beside the state that was decided.
    Shown(StoreError),
}

impl Failure {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Unshown(error) | Self::Shown(error) => error,
        }
    }
}

pub(super) trait Reconciled: Watched + Resource<DynamicType = ()> {
    /// Gathers, decides, applies one effect, writes the status.
    fn reconcile(
        this: Arc<Self>,
        context: Arc<Context>,
    ) -> impl Future<Output = Result<Action, Failure>> + Send + 'static;

    /// Shows on the object that an effect failed, unless its reconcile shows failures beside the
    /// state that was decided. A conflict is shown only if it lasts, because the next reconcile shows
    /// the newer object.
    fn show_failure(
        &self,
        _context: &Context,
        _error: &StoreError,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        async { Ok(()) }
    }
}
