//! Registrations by token: the token of the spec and the one that the status shows.

use std::collections::{BTreeSet, HashMap};

use coordinator_api::registration::MachineRegistration;
use sha2::{Digest as _, Sha256};

use super::groups::Groups;
use crate::key::Key;

/// SHA-256 of a token, because an index keeps no secret.
type Token = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Tokens {
    known: HashMap<Key, BTreeSet<Token>>,
    registrations: Groups<Token, Key>,
}

impl Tokens {
    /// Sets the tokens of a registration. The answer has the other registrations with a token that
    /// was added or removed.
    pub(super) fn set_tokens(
        &mut self,
        key: &Key,
        registration: Option<&MachineRegistration>,
    ) -> BTreeSet<Key> {
        let new: BTreeSet<Token> = registration.into_iter().flat_map(tokens_of).map(hash).collect();
        let old = self.known.remove(key).unwrap_or_default();
        for token in old.difference(&new) {
            self.registrations.remove_member(token, key);
        }
        for token in new.difference(&old) {
            self.registrations.insert_member(token, key);
        }
        let changed = old.symmetric_difference(&new);
        let others = changed.flat_map(|token| self.registrations.group_members(token));
        let others = others.filter(|other| *other != key).cloned().collect();
        if !new.is_empty() {
            self.known.insert(key.clone(), new);
        }
        others
    }

    pub(super) fn find_registrations(&self, token: &str) -> Vec<Key> {
        self.registrations.group_members(&hash(token)).cloned().collect()
    }
}

fn tokens_of(registration: &MachineRegistration) -> impl Iterator<Item = &str> {
    let shown = registration.status.as_ref().and_then(|status| status.registration_token.as_deref());
    registration.spec.token.as_deref().into_iter().chain(shown)
}

fn hash(token: &str) -> Token {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn registration(asked: Option<&str>, shown: Option<&str>) -> MachineRegistration {
        let mut registration = MachineRegistration::new("r", serde_json::from_value(json!({})).unwrap());
        registration.spec.token = asked.map(str::to_owned);
        registration.status.get_or_insert_default().registration_token = shown.map(str::to_owned);
        registration
    }

    #[test]
    fn registrations_are_found_by_both_tokens() {
        let key = |name: &str| Key::new("fleet", name);
        let mut tokens = Tokens::default();
        let none = BTreeSet::new();
        assert_eq!(tokens.set_tokens(&key("a"), Some(&registration(Some("one"), Some("two")))), none);
        assert_eq!(tokens.set_tokens(&key("b"), Some(&registration(Some("two"), None))), [key("a")].into());
        assert_eq!(tokens.set_tokens(&key("b"), Some(&registration(Some("two"), None))), none, "the same");
        assert_eq!(tokens.find_registrations("one"), [key("a")]);
        assert_eq!(tokens.find_registrations("two").len(), 2);
        let rotated = registration(Some("one"), Some("three"));
        assert_eq!(tokens.set_tokens(&key("a"), Some(&rotated)), [key("b")].into(), "it is free");
        assert_eq!(tokens.find_registrations("two"), [key("b")]);
        assert_eq!(tokens.set_tokens(&key("b"), None), none);
        assert_eq!((tokens.find_registrations("two"), tokens.known.len()), (vec![], 1));
    }
}
