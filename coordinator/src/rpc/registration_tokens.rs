//! Registrations and downloads by token. The key is the SHA-256 of the token, so that a look-up costs
//! a single hash and its time reveals nothing about a token.

use crate::key::Presence;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coordinator_api::registration::MachineRegistration;
use coordinator_api::seed_image::SeedImage;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

type Token = [u8; 32];

/// An object with a secret token in its status.
pub trait WithToken: Resource<DynamicType = ()> + Clone {
    fn token(&self) -> Option<&str>;

    /// The URL with the token that hosts have to know.
    fn url(&self) -> Option<&str> {
        None
    }
}

impl WithToken for MachineRegistration {
    fn token(&self) -> Option<&str> {
        self.status.as_ref()?.registration_token.as_deref()
    }

    fn url(&self) -> Option<&str> {
        self.status.as_ref()?.registration_url.as_deref()
    }
}

impl WithToken for SeedImage {
    fn token(&self) -> Option<&str> {
        self.status.as_ref()?.download_token.as_deref()
    }
}

/// Hashes of the token and the URL of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Secrets {
    token: Token,
    url: Option<Token>,
}

struct Index<K: WithToken> {
    by_token: HashMap<Token, ObjectRef<K>>,
    by_object: HashMap<ObjectRef<K>, Secrets>,
}

/// The index of objects by token.
pub struct TokenIndex<K: WithToken> {
    index: Mutex<Index<K>>,
    changes: watch::Sender<()>,
}

/// `MachineRegistrations` by registration token.
pub type RegistrationTokens = TokenIndex<MachineRegistration>;
/// `SeedImages` by download token.
pub type DownloadTokens = TokenIndex<SeedImage>;

impl<K: WithToken> Default for TokenIndex<K> {
    fn default() -> Self {
        let index = Mutex::new(Index { by_token: HashMap::new(), by_object: HashMap::new() });
        Self { index, changes: watch::Sender::default() }
    }
}

impl<K: WithToken> TokenIndex<K> {
    fn lock_index(&self) -> MutexGuard<'_, Index<K>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn apply_change(&self, object: &K, presence: Presence) {
        let is_changed = match presence {
            Presence::Exists => self.lock_index().update_token(object),
            Presence::Deleted => {
                self.lock_index().remove_token(&ObjectRef::from_obj(object));
                false
            }
        };
        if is_changed {
            self.changes.send_replace(());
        }
    }

    /// The receiver is marked whenever an object gets another token or URL.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The object with that token.
    pub fn find_object(&self, token: &str) -> Option<ObjectRef<K>> {
        if token.is_empty() {
            return None;
        }
        self.lock_index().by_token.get(&hash(token)).cloned()
    }
}

impl<K: WithToken> Index<K> {
    /// Updates the token of an object; `true` if token or URL differ from the former ones.
    fn update_token(&mut self, object: &K) -> bool {
        let key = ObjectRef::from_obj(object);
        let former = self.remove_token(&key);
        let Some(token) = object.token().filter(|token| !token.is_empty()) else { return false };
        let secrets = Secrets { token: hash(token), url: object.url().map(hash) };
        self.by_token.insert(secrets.token, key.clone());
        self.by_object.insert(key, secrets);
        former != Some(secrets)
    }

    fn remove_token(&mut self, key: &ObjectRef<K>) -> Option<Secrets> {
        let secrets = self.by_object.remove(key)?;
        if self.by_token.get(&secrets.token) == Some(key) {
            self.by_token.remove(&secrets.token);
        }
        Some(secrets)
    }
}

fn hash(token: &str) -> Token {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(name: &str, token: &str) -> MachineRegistration {
        let mut registration = MachineRegistration::new(name, serde_json::from_str("{}").unwrap());
        registration.metadata.namespace = Some("fleet".into());
        registration.status.get_or_insert_default().registration_token = Some(token.into());
        registration
    }

    fn found(tokens: &RegistrationTokens, token: &str) -> Option<String> {
        tokens.find_object(token).map(|key| key.name)
    }

    #[test]
    fn only_the_newest_token_is_found() {
        let tokens = RegistrationTokens::default();
        tokens.apply_change(&registration("a", "one"), Presence::Exists);
        tokens.apply_change(&registration("b", "two"), Presence::Exists);
        assert_eq!(found(&tokens, "one").as_deref(), Some("a"));
        tokens.apply_change(&registration("a", "three"), Presence::Exists);
        assert_eq!((found(&tokens, "one"), found(&tokens, "three").as_deref()), (None, Some("a")));
        tokens.apply_change(&registration("a", ""), Presence::Exists);
        assert_eq!((found(&tokens, "three"), found(&tokens, "")), (None, None));
    }

    #[test]
    fn another_token_or_url_is_a_change() {
        let tokens = RegistrationTokens::default();
        let mut changes = tokens.subscribe();
        let steps = [("one", "https://a/one"), ("two", "https://a/two"), ("two", "https://b/two")];
        for (token, url) in steps {
            let mut registration = registration("a", token);
            registration.status.as_mut().unwrap().registration_url = Some(url.into());
            for is_new in [true, false] {
                tokens.apply_change(&registration, Presence::Exists);
                assert_eq!(changes.has_changed().unwrap(), is_new, "{url}");
                changes.mark_unchanged();
            }
        }
    }

    #[test]
    fn deleted_registrations_are_not_found() {
        let tokens = RegistrationTokens::default();
        for (name, token) in [("a", "one"), ("b", "two"), ("c", "three")] {
            tokens.apply_change(&registration(name, token), Presence::Exists);
        }
        for name in ["a", "c"] {
            tokens.apply_change(&registration(name, "of its last version"), Presence::Deleted);
        }
        assert_eq!((found(&tokens, "one"), found(&tokens, "three")), (None, None));
        assert_eq!(found(&tokens, "two").as_deref(), Some("b"));
        assert_eq!(tokens.lock_index().by_object.len(), 1);
    }
}
