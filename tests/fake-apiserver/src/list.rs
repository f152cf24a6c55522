//! LIST: selectors, pages, and the resource version to read at.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kinds::Origin;
use crate::read::Done;
use crate::request::{Call, Form};
use crate::store::{Key, Store};

/// Where the next page of a list begins.
#[derive(Serialize, Deserialize)]
struct Token {
    /// All pages show the state at this resource version.
    #[serde(rename = "rv")]
    revision: u64,
    /// The last key of the page before.
    after: Key,
}

impl Token {
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| Failure::bad_request("continue key is not valid"))
    }
}

/// What a list asks for besides its selectors.
struct Page {
    revision: u64,
    after: Option<Key>,
    limit: usize,
}

impl Page {
    fn parse(call: &Call, store: &Store) -> Result<Self, Failure> {
        let limit = call.query("limit").parse().ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let (version, matching) = (call.query("resourceVersion"), call.query("resourceVersionMatch"));
        let token = call.query("continue");
        if !matching.is_empty() && (version.is_empty() || !token.is_empty()) {
            let why =
                "resourceVersionMatch is forbidden unless resourceVersion is provided, and with continue";
            return Err(Failure::unprocessable(format!("resourceVersionMatch: Forbidden: {why}")));
        }
        if !token.is_empty() {
            if !["", "0"].contains(&version) {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Failure::bad_request(why));
            }
            let Token { revision, after } = Token::decode(token)?;
            return Self { revision, after: Some(after), limit }.checked(store);
        }
        let asked: u64 = match version {
            "" => 0,
            version => version
                .parse()
                .map_err(|_| Failure::bad_request(format!("Invalid resource version: {version}")))?,
        };
        let is_exact = match matching {
            // Historically, a page at a resource version is one at exactly that version.
            "" => asked > 0 && limit < usize::MAX,
            "NotOlderThan" => false,
            "Exact" if asked > 0 => true,
            _ => return Err(Failure::unprocessable("resourceVersionMatch: Unsupported value")),
        };
        if asked > store.revision() {
            return Err(Failure::future_version(asked, store.revision()));
        }
        let revision = if is_exact { asked } else { store.revision() };
        // Reads of any version come from a cache, which has no pages.
        let limit = if version == "0" { usize::MAX } else { limit };
        Self { revision, after: None, limit }.checked(store)
    }

    fn checked(self, store: &Store) -> Result<Self, Failure> {
        if self.revision < store.oldest() {
            return Err(Failure::expired(self.revision, store.oldest()));
        }
        Ok(self)
    }
}

impl Store {
    pub(crate) fn list_objects(&self, call: &Call) -> Result<Done, Failure> {
        let selector = call.selector()?;
        let page = Page::parse(call, self)?;
        let mut found = self.snapshot(page.revision, &call.kind.resource(), call.namespace());
        found.retain(|key, object| {
            page.after.as_ref().is_none_or(|after| key > after) && selector.matches(object)
        });
        let left = found.len().saturating_sub(page.limit);
        let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
        if left > 0
            && let Some(after) = found.keys().nth(page.limit.saturating_sub(1)).cloned()
        {
            metadata["continue"] = json!(Token { revision: page.revision, after }.encode());
            if selector.is_empty() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        let items: Vec<_> =
            found.values().take(page.limit).map(|object| present_item(call, object)).collect();
        let (kind, api_version) = match call.form {
            Form::Whole => (format!("{}List", call.kind.name), call.kind.api_version()),
            Form::Metadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
        };
        Ok(Done::unchanged(json!({
            "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items,
        })))
    }
}

/// Lists of built-in kinds do not repeat the type in each item.
fn present_item(call: &Call, object: &Value) -> Value {
    let mut item = call.present_object(object);
    if call.form == Form::Whole
        && call.kind.origin == Origin::BuiltIn
        && let Value::Object(members) = &mut item
    {
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}
