//! PATCH: merge and JSON patches; server-side apply and strategic merge are not served.

use serde_json::Value;

use crate::failure::Failure;
use crate::metadata::check_patched;
use crate::read::Done;
use crate::request::Call;
use crate::store::Store;

impl Store {
    pub(crate) fn patch_object(&mut self, call: &Call) -> Result<Done, Failure> {
        let content_type = call.content_type.split(';').next().unwrap_or_default().trim();
        match content_type {
            "application/merge-patch+json" => self.merge_patch(call),
            "application/json-patch+json" => self.json_patch(call),
            _ => Err(Failure::unsupported_media_type()),
        }
    }

    fn merge_patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let patch: Value = serde_json::from_slice(&call.body)
            .map_err(|error| Failure::bad_request(format!("cannot parse the patch: {error}")))?;
        let mut object = Value::clone(&*self.get_existing(call)?);
        json_patch::merge(&mut object, &patch);
        check_patched(&object)?;
        self.store_update(call, object)
    }

    fn json_patch(&mut self, call: &Call) -> Result<Done, Failure> {
        let patch: json_patch::Patch = serde_json::from_slice(&call.body)
            .map_err(|error| Failure::bad_request(format!("cannot parse the patch: {error}")))?;
        let mut object = Value::clone(&*self.get_existing(call)?);
        json_patch::patch(&mut object, &patch).map_err(|error| {
            let message = format!("the server rejected our request due to an error in our request: {error}");
            Failure::unprocessable(message)
        })?;
        check_patched(&object)?;
        self.store_update(call, object)
    }
}
