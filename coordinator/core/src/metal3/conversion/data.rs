//! `Metal3Data` and `Metal3DataClaim`. What v1beta2 has is of the same form at v1beta1.

use super::ConversionError;
use super::fields::{Fields, shorten_reference};

pub(super) fn spec_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    spec.remove("templateReference");
    shorten_reference(spec, "claim")?;
    shorten_reference(spec, "template")
}

pub(super) fn claim_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    shorten_reference(spec, "template")
}

/// The data has no reference in its status.
pub(super) fn status_to_v1beta2(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    status.remove_empty_text("errorMessage");
    shorten_reference(status, "renderedData")
}
