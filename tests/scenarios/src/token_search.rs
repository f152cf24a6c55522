//! The search for tokens of registrations in all that hosts get. A host that keeps such a token admits
//! other hosts (decision 73).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::client::transport::Tap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_api::names::registration_secret;
use memchr::memmem;
use serde_json::Value;

use crate::dump::text;

/// Bytes of a generated token: a UUID in hexadecimal digits.
const TOKEN_BYTES: usize = 32;

#[derive(Default)]
struct Found {
    /// Every token that a registration had at some time.
    tokens: BTreeSet<String>,
    /// Hosts that got one of them.
    hosts: BTreeSet<String>,
}

/// All tokens of the registrations, and the hosts to which one was sent.
#[derive(Clone, Default)]
pub(crate) struct TokenSearch(Arc<Mutex<Found>>);

impl Found {
    fn has_token(&self, bytes: &[u8]) -> bool {
        self.tokens.iter().any(|token| memmem::find(bytes, token.as_bytes()).is_some())
    }
}

impl TokenSearch {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns a token once it is in an object, which is before a coordinator can send it.
    pub(crate) fn observe(&self, resource: &str, now: Option<&Value>) {
        let Some(object) = now else { return };
        let token = match resource {
            "machineregistrations.elemental.cattle.io" => {
                text(object, "/status/registrationToken").to_owned()
            }
            "secrets" if object["type"] == registration_secret::TYPE => {
                let data = &object["data"][registration_secret::TOKEN];
                let bytes = STANDARD.decode(data.as_str().unwrap_or_default());
                String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
            }
            _ => return,
        };
        if !token.is_empty() {
            self.found().tokens.insert(token);
        }
    }

    /// The tap of one connection of a host. The search is in the bytes of HTTP/2, where a message of
    /// gRPC is in one piece up to 16 KiB.
    pub(crate) fn tap(&self, host: &str) -> Tap {
        let (search, host) = (self.clone(), host.to_owned());
        let mut window = vec![];
        Box::new(move |bytes| {
            // The end of the former bytes is kept, because a read may end within a token.
            window.drain(..window.len().saturating_sub(TOKEN_BYTES - 1));
            window.extend_from_slice(bytes);
            let mut found = search.found();
            if found.has_token(&window) {
                found.hosts.insert(host.clone());
            }
        })
    }

    /// Tells whether some token is in the bytes.
    pub(crate) fn has_token(&self, bytes: &[u8]) -> bool {
        self.found().has_token(bytes)
    }

    /// Each host to which a token was sent, as a violation.
    pub(crate) fn list_sent(&self) -> Vec<String> {
        let hosts = self.found().hosts.clone().into_iter();
        hosts.map(|host| format!("{host} was sent a token of a registration")).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORMER: &str = "00112233445566778899aabbccddeeff";
    const NEWER: &str = "ffeeddccbbaa99887766554433221100";

    /// A search that knows one token by a Secret, and another by a status.
    fn search() -> TokenSearch {
        let search = TokenSearch::default();
        let data = json!({ registration_secret::TOKEN: STANDARD.encode(FORMER) });
        let secret = json!({ "type": registration_secret::TYPE, "data": data });
        search.observe("secrets", Some(&secret));
        let registration = json!({ "status": { "registrationToken": NEWER } });
        search.observe("machineregistrations.elemental.cattle.io", Some(&registration));
        search
    }

    #[test]
    fn token_is_found_however_it_is_cut() {
        for token in [FORMER, NEWER] {
            let message = format!("\n\0https://c.example/elemental/registration/{token}\"\0");
            for end in 0..=message.len() {
                let search = search();
                let mut tap = search.tap("host-1");
                let (first, second) = message.as_bytes().split_at(end);
                [first, &[], second].into_iter().for_each(&mut tap);
                assert_eq!(search.list_sent(), ["host-1 was sent a token of a registration"], "cut at {end}");
            }
        }
    }

    #[test]
    fn parts_and_tokens_of_hosts_are_none() {
        let search = search();
        let mut tap = search.tap("host-1");
        for text in
            [&FORMER[1..], &NEWER[..31], "fleet~hosts~0011223344556677", FORMER.to_uppercase().as_str()]
        {
            tap(text.as_bytes());
            tap(b"\0");
        }
        search.tap("host-2")(&FORMER.as_bytes()[..16]);
        search.tap("host-2")(&FORMER.as_bytes()[16..]);
        assert_eq!(search.list_sent(), Vec::<String>::new(), "each connection is searched by itself");
    }
}
