use coordinator_core::host::certified::KeyTime;
use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::*;

fn request(key: &KeyPair) -> Vec<u8> {
    CertificateParams::new(vec!["evil.example".to_owned()])
        .unwrap()
        .serialize_request(key)
        .unwrap()
        .der()
        .to_vec()
}

fn leaf(chain: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()
}

#[test]
fn hosts_of_former_authority_stay_trusted() {
    let generate = || Authority::generate(Timestamp::now()).unwrap();
    let (old, new) = (generate(), generate());
    let bundle = format!("{}{}", new.certificates(), old.certificates());
    let rotated = Authority::parse(&bundle, &new.key_pem()).unwrap();
    assert_eq!(rotated.certificates(), bundle, "hosts get both");
    let roots: Vec<_> = rotated.roots().cloned().collect();
    assert_eq!(roots, [new.der.clone(), old.der.clone()]);
    assert!(
        matches!(Authority::parse(&bundle, &old.key_pem()), Err(CaError::Stored { .. })),
        "the first signs"
    );
    let torn =
        format!("{}-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n", new.certificates());
    assert!(matches!(Authority::parse(&torn, &new.key_pem()), Err(CaError::Stored { .. })));
}

#[test]
fn issuers_of_issued_authority_are_not_trusted() {
    let generate = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let now = timestamp(Timestamp::now()).unwrap();
    let params = |name: &str, is_ca| {
        let mut params = certificate_params(now - BACKDATED, now + HOST_LIFE).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = is_ca;
        params.key_usages.push(KeyUsagePurpose::KeyCertSign);
        params
    };
    let (root_key, key) = (generate(), generate());
    let root = params("site", IsCa::Ca(BasicConstraints::Unconstrained)).self_signed(&root_key).unwrap();
    let issuer = Issuer::from_ca_cert_der(root.der(), &root_key).unwrap();
    let issue = |is_ca| params("hosts", is_ca).signed_by(&key, &issuer).unwrap().pem();
    let secret = |certificate: &str, key: &str| {
        let data = [("ca.crt", root.pem()), ("tls.crt", certificate.to_owned()), ("tls.key", key.to_owned())];
        let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())));
        Secret { data: Some(BTreeMap::from(data)), ..Secret::default() }
    };
    let own = issue(IsCa::Ca(BasicConstraints::Constrained(0)));
    let chain = format!("{own}{}", root.pem());
    let authority = secret::parse_authority(&secret(&chain, &key.serialize_pem())).unwrap();
    assert_eq!(authority.certificates(), own, "what hosts trust");
    assert_eq!(authority.roots().count(), 1);
    assert!(authority.server(&["c.example".to_owned()], Timestamp::now()).is_ok());
    for (name, certificate, key) in [
        ("no authority", issue(IsCa::ExplicitNoCa), key.serialize_pem()),
        ("another key", own, root_key.serialize_pem()),
    ] {
        let error = secret::parse_authority(&secret(&certificate, &key)).unwrap_err();
        assert!(matches!(error, CaError::Stored { .. }), "{name}: {error}");
    }
}

#[test]
fn host_certificate_states_identity_and_not_the_request() {
    let host = HostKey { namespace: "fleet".into(), tpm_hash: "0a0b".into() };
    let now = Timestamp::from_second(1_780_000_000).unwrap();
    let authority = Authority::generate(now).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let requested = RequestedKey::parse(&request(&key)).unwrap();
    for role in [Role::Live, Role::Installed] {
        let subject = Subject { key: &host, name: "host-1", role, key_time: KeyTime::proven(now) };
        let chain = authority.sign_host(&requested, &subject, now).unwrap();
        let der = leaf(&chain);
        let peer = Peer::parse(&der).unwrap();
        assert_eq!((&peer.key, peer.name_hint.as_str(), peer.role), (&host, "host-1", role));
        assert_eq!(peer.not_after.as_second(), now.as_second() + 86_400);
        assert!(!peer.is_expired(now) && peer.is_expired(peer.not_after));
        assert_eq!(peer.public_key_hash, requested.hash());
        assert_eq!(peer.key_time, KeyTime::proven(now));
        assert_eq!(authority.verify_former(&chain).as_ref(), Some(&peer));
        assert_eq!(Authority::generate(now).unwrap().verify_former(&chain), None, "another authority");
        assert_eq!(peer.public_key_hash, proof::identity(&key.subject_public_key_info()));
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let validity = parsed.validity();
        assert_eq!(validity.not_before.timestamp(), now.as_second() - 300);
        assert_eq!(validity.not_after.timestamp(), now.as_second() + 86_400);
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any, "a host is no coordinator");
        assert!(chain.ends_with(authority.certificates()));
    }
}

#[test]
fn server_certificate_is_as_old_as_the_authority() {
    let made = Timestamp::from_second(1_780_000_000).unwrap();
    let later = made + Duration::from_hours(24 * 400);
    let authority = Authority::generate(made).unwrap();
    let server = authority.server(&["c.example".to_owned()], later).unwrap();
    for (name, der, start, end) in [
        ("authority", &authority.der, made, made + AUTHORITY_LIFE),
        ("server", &server.chain[0], made, later + SERVER_LIFE),
    ] {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).unwrap();
        let validity = parsed.validity();
        assert_eq!(validity.not_before.timestamp(), start.as_second() - 7 * 86_400, "{name}");
        assert_eq!(validity.not_after.timestamp(), end.as_second(), "{name}");
    }
}

#[test]
fn stored_authority_needs_its_own_key() {
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let other = Authority::generate(Timestamp::now()).unwrap();
    assert!(Authority::parse(authority.certificates(), &authority.key_pem()).is_ok());
    for (name, certificate, key) in [
        ("another key", authority.certificates(), other.key_pem()),
        ("no key", authority.certificates(), String::new()),
        ("no certificate", "", authority.key_pem()),
    ] {
        let error = Authority::parse(certificate, &key).unwrap_err();
        assert!(matches!(error, CaError::Stored { .. }), "{name}: {error}");
    }
}

#[test]
fn request_must_be_signed_by_its_key() {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let good = request(&key);
    let mut tampered = good.clone();
    let last = tampered.len() - 1;
    tampered[last] ^= 1;
    let mut trailing = good.clone();
    trailing.push(0);
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    for (name, given, want) in [
        ("good", good, true),
        ("tampered", tampered, false),
        ("trailing bytes", trailing, false),
        ("another curve", request(&p384), false),
        ("empty", vec![], false),
    ] {
        assert_eq!(RequestedKey::parse(&given).is_ok(), want, "{name}");
    }
}

#[test]
fn server_certificate_names_no_host() {
    let authority = Authority::generate(Timestamp::now()).unwrap();
    let names = ["127.0.0.1".to_owned(), "c.example".to_owned()];
    let server = authority.server(&names, Timestamp::now()).unwrap();
    assert_eq!(Peer::parse(&server.chain[0]), Err(PeerError::Name));
    assert_eq!(Peer::parse(b"nonsense"), Err(PeerError::Certificate));
}
