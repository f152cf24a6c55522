//! Tokens of installed hosts. An installed host keeps no token of its registration, which would admit
//! other hosts: it keeps one that admits the host with its key alone. It follows from the token of the
//! registration, from the key of the CA and from the key of the host, and ends with either of the
//! first two. Nothing of it is stored.

use coordinator_api::registration::MachineRegistration;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use crate::ca::Authority;

/// Between namespace, name and code. No name of Kubernetes contains it, and in URLs it is plain.
const SEPARATOR: char = '~';

/// The registration URL for the installed disk of the host with this hash of its key; `None` while the
/// registration is not ready.
pub(super) fn render_url(
    authority: &Authority,
    registration: &MachineRegistration,
    tpm_hash: &str,
) -> Option<String> {
    let url = registration.status.as_ref()?.registration_url.as_deref()?;
    let (address, _) = url.rsplit_once('/')?;
    Some(format!("{address}/{}", render_token(authority, registration, tpm_hash)?))
}

/// The registration that a host token names. Whether it was given to the host that shows it,
/// [`is_genuine`] tells.
pub(super) fn find_registration(token: &str) -> Option<ObjectRef<MachineRegistration>> {
    let (namespace, rest) = token.split_once(SEPARATOR)?;
    let (name, _) = rest.split_once(SEPARATOR)?;
    Some(ObjectRef::new(name).within(namespace))
}

/// Tells whether the token is that of the host with this hash of its key.
pub(super) fn is_genuine(
    authority: &Authority,
    registration: &MachineRegistration,
    tpm_hash: &str,
    token: &str,
) -> bool {
    let code = token.rsplit_once(SEPARATOR).and_then(|(_, code)| hex::decode(code).ok());
    let message = render_message(registration, tpm_hash);
    code.zip(message).is_some_and(|(code, message)| authority.verify_host_code(&message, &code))
}

fn render_token(authority: &Authority, registration: &MachineRegistration, tpm_hash: &str) -> Option<String> {
    let code = hex::encode(authority.make_host_code(&render_message(registration, tpm_hash)?));
    let (namespace, name) = (registration.namespace()?, registration.name_any());
    Some(format!("{namespace}{SEPARATOR}{name}{SEPARATOR}{code}"))
}

fn render_message(registration: &MachineRegistration, tpm_hash: &str) -> Option<Vec<u8>> {
    let token = registration.status.as_ref()?.registration_token.as_deref()?;
    let (namespace, name) = (registration.namespace()?, registration.name_any());
    // The token is last, because it alone may contain any character.
    Some([&*namespace, &*name, tpm_hash, token].join("\0").into_bytes())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn registration(namespace: &str, name: &str, token: &str) -> MachineRegistration {
        let mut registration = MachineRegistration::new(name, serde_json::from_str("{}").unwrap());
        registration.metadata.namespace = Some(namespace.into());
        let url = format!("https://c.example:8443/elemental/registration/{token}");
        let status = serde_json::json!({ "registrationToken": token, "registrationURL": url });
        registration.status = serde_json::from_value(status).unwrap();
        registration
    }

    #[test]
    fn host_token_admits_its_own_host_alone() {
        let [authority, other] = [(); 2].map(|()| Authority::generate(Timestamp::UNIX_EPOCH).unwrap());
        let hosts = registration("fleet", "hosts", "secret");
        let url = render_url(&authority, &hosts, "ab12").unwrap();
        assert!(!url.contains("secret"), "{url}");
        let token = url.strip_prefix("https://c.example:8443/elemental/registration/").unwrap();
        assert_eq!(find_registration(token), Some(ObjectRef::new("hosts").within("fleet")));
        let admits =
            |authority, registration: &_, hash, token: &str| is_genuine(authority, registration, hash, token);
        assert!(admits(&authority, &hosts, "ab12", token));
        assert!(!admits(&authority, &hosts, "ab13", token), "another host");
        assert!(!admits(&other, &hosts, "ab12", token), "another CA");
        assert!(!admits(&authority, &registration("fleet", "hosts", "rotated"), "ab12", token), "rotated");
        assert!(!admits(&authority, &registration("other", "hosts", "secret"), "ab12", token));
        let short = &token[..token.len() - 2];
        for garbled in [short, "", "~", "~~", "secret", "fleet~hosts~", "fleet~hosts~zz"] {
            assert!(!admits(&authority, &hosts, "ab12", garbled), "{garbled}");
        }
    }

    #[test]
    fn registration_without_a_token_has_no_host_tokens() {
        let authority = Authority::generate(Timestamp::UNIX_EPOCH).unwrap();
        let mut hosts = registration("fleet", "hosts", "secret");
        hosts.status = None;
        assert_eq!(render_url(&authority, &hosts, "ab12"), None);
        assert!(!is_genuine(&authority, &hosts, "ab12", "fleet~hosts~00"));
        assert_eq!(find_registration("secret"), None);
    }
}
