//! `Metal3Machine` and its template.

use super::fields::{Fields, shorten_reference};
use super::{ConversionError, status};

pub(super) fn spec_to_v1beta2(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    for name in ["providerID", "automatedCleaningMode", "failureDomain"] {
        spec.remove_empty_text(name);
    }
    shorten_reference(spec, "dataTemplate")?;
    let Some(mut image) = spec.object("image")? else { return Ok(()) };
    image.remove("ociAuthSecretName");
    image.remove_empty_text("checksumType");
    image.remove_empty_text("format");
    image.rename("format", "diskFormat");
    // CAPM3 shows a machine without an image so at v1beta1.
    if image.text("url")?.is_none_or(str::is_empty) {
        spec.remove("image");
    }
    Ok(())
}

pub(super) fn spec_to_v1beta1(spec: &mut Fields<'_>) -> Result<(), ConversionError> {
    if let Some(mut image) = spec.object("image")? {
        image.rename("diskFormat", "format");
    }
    Ok(())
}

pub(super) fn status_to_v1beta2(status: &mut Fields<'_>) -> Result<(), ConversionError> {
    status::to_v1beta2(status)?;
    shorten_reference(status, "renderedData")
}
