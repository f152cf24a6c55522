use super::certificate::parse_uri;
use super::fake::{issue_certificate, january_day as day};
use super::*;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn the_key_persists_with_mode_0600() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("identity");
    assert!(Identity::load(&path).unwrap().is_none());
    let made = Identity::load_or_make(&path).unwrap();
    let again = Identity::load_or_make(&path).unwrap();
    assert_eq!(made.hash(), again.hash());
    let permissions = fs::metadata(path.join(KEY)).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
}

#[test]
fn tpm_identity_is_copied_with_key() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let software = Identity::load_or_make(here.path()).unwrap();
    assert_eq!(software.endorsement_key(), None);
    let held = Identity::load_or_make_for_tpm(here.path(), vec![7]).unwrap();
    assert_eq!(held.public_key(), software.public_key(), "the key of the TLS client stays");
    assert_eq!(held.hash(), proof::identity(&[7]));
    let copied = held.copy_to(there.path()).unwrap();
    let loaded = Identity::load(there.path()).unwrap().unwrap();
    assert_eq!((loaded.hash(), loaded.public_key()), (copied.hash(), held.public_key()));
    software.copy_to(there.path()).unwrap();
    let loaded = Identity::load(there.path()).unwrap().unwrap();
    assert_eq!(loaded.hash(), software.hash(), "a software key leaves no endorsement key");
    fs::write(here.path().join(ENDORSEMENT_KEY), "").unwrap();
    assert!(Identity::load(here.path()).unwrap_err().message.ends_with("holds no public key"));
}

#[test]
fn a_next_key_counts_with_its_certificate() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let load = || Identity::load(here.path()).unwrap().unwrap();
    let mut identity = Identity::load_or_make(here.path()).unwrap();
    let (hash, former) = (identity.hash(), identity.public_key());
    let parse = |identity: &Identity| {
        Certificate::parse(&issue_certificate(identity, "installed"), &identity.public_key()).unwrap()
    };
    identity.keep_certificate(&parse(&identity));
    let pem = NextKey::generate().unwrap().0.serialize_pem();
    fs::write(there.path().join(KEY), &pem).unwrap();
    fs::write(there.path().join(FIRST_KEY), &former).unwrap();
    let next = Identity::load(there.path()).unwrap().unwrap();
    let certificate = parse(&next);
    identity.keep_first_key().unwrap();
    fs::write(here.path().join(NEXT_KEY), &pem).unwrap();
    assert_eq!((load().public_key(), load().hash()), (former.clone(), hash.clone()), "no certificate yet");
    fs::write(here.path().join("installed.pem"), &certificate.chain).unwrap();
    assert_eq!(
        (load().public_key(), load().hash()),
        (next.public_key(), hash.clone()),
        "not in its place yet"
    );
    identity.replace_key(NextKey(read_key(&there.path().join(KEY)).unwrap().unwrap()), &certificate).unwrap();
    assert_eq!((load().public_key(), load().hash()), (next.public_key(), hash.clone()));
    assert!(!here.path().join(NEXT_KEY).exists());
    let mut refused = load();
    refused.abandon_key().unwrap();
    assert_ne!(refused.public_key(), next.public_key());
    let offered = refused.public_key();
    refused.abandon_key().unwrap();
    assert_eq!((load().public_key(), load().hash()), (offered, hash), "an operator may accept it");
}

#[test]
fn a_proof_is_verified_by_the_public_key() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::load_or_make(directory.path()).unwrap();
    let binding = proof::binding(&[1; 32], &[2; 32], &identity.public_key());
    let signature = identity.prove_possession(&binding).unwrap();
    let verifier = ring::signature::UnparsedPublicKey::new(
        &ring::signature::ECDSA_P256_SHA256_ASN1,
        identity.key.public_key_raw(),
    );
    assert!(verifier.verify(&binding, &signature).is_ok());
    assert!(verifier.verify(&[0; 32], &signature).is_err());
}

#[test]
fn the_installed_certificate_wins_while_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::load_or_make(directory.path()).unwrap();
    assert_eq!(identity.certificate(day(2)), None);
    let parse =
        |role| Certificate::parse(&issue_certificate(&identity, role), &identity.public_key()).unwrap();
    let (live, installed) = (parse("live"), parse("installed"));
    assert_eq!(live.renew_at(), day(3));
    assert_eq!(live.inventory.as_deref(), Some("fleet/host-1"));
    identity.keep_certificate(&live);
    assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Live);
    identity.keep_certificate(&installed);
    assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Installed);
    assert_eq!(identity.certificate(day(5)).unwrap().role, Role::Installed, "it was received just now");
    let restarted = Identity::load(directory.path()).unwrap().unwrap();
    assert_eq!(restarted.certificate(day(2)).unwrap().role, Role::Installed);
    assert_eq!(restarted.certificate(day(5)), None, "expired");
    assert_eq!(identity.kept_certificates().count(), 2, "yet kept");
    identity.keep_certificate(&live);
    assert_eq!(identity.certificate(day(2)).unwrap().role, Role::Live, "a new registration starts over");
}

#[test]
fn a_certificate_without_file_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut identity = Identity::load_or_make(directory.path()).unwrap();
    let parse = |identity: &Identity| {
        Certificate::parse(&issue_certificate(identity, "installed"), &identity.public_key()).unwrap()
    };
    let stored = parse(&identity);
    identity.keep_certificate(&stored);
    assert_eq!(identity.write_failure(), None);
    // The names of the temporary files are taken.
    let taken = [".installed.pem.new", ".next-key.pem.new"].map(|name| directory.path().join(name));
    for path in &taken {
        fs::create_dir(path).unwrap();
    }
    let newer = parse(&identity);
    identity.keep_certificate(&newer);
    assert_eq!(identity.certificate(day(2)), Some(newer));
    assert!(identity.write_failure().unwrap().message.contains("cannot keep the identity"));
    let restarted = Identity::load(directory.path()).unwrap().unwrap();
    assert_eq!(restarted.certificate(day(2)), Some(stored), "the file is the former one");
    let former = identity.public_key();
    let certificate = parse(&identity);
    identity.replace_key(NextKey::generate().unwrap(), &certificate).unwrap_err();
    assert_eq!(identity.public_key(), former, "a key without file is not used");
    for path in &taken {
        fs::remove_dir(path).unwrap();
    }
    identity.store_received();
    assert_eq!(identity.write_failure(), None);
    let restarted = Identity::load(directory.path()).unwrap().unwrap();
    assert_eq!(restarted.certificate(day(2)), identity.certificate(day(2)));
}

#[tokio::test(start_paused = true)]
async fn life_and_renewal_follow_the_receipt() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::load_or_make(directory.path()).unwrap();
    let chain = issue_certificate(&identity, "installed");
    let certificate = Certificate::parse(&chain, &identity.public_key()).unwrap();
    let (life, years) = (certificate.life(), Duration::from_hours(2 * 365 * 24));
    let behind = certificate.not_before - years;
    assert_eq!(identity.renewal_wait(&certificate, behind), life * 2 / 3, "not two years");
    identity.keep_certificate(&certificate);
    for now in [behind, certificate.not_before, certificate.not_after + years] {
        assert_eq!(identity.certificate(now).as_ref(), Some(&certificate));
        assert_eq!(identity.renewal_wait(&certificate, now), life * 2 / 3);
    }
    tokio::time::advance(life / 2).await;
    assert_eq!(identity.renewal_wait(&certificate, behind), life / 6);
    tokio::time::advance(life).await;
    assert_eq!(identity.certificate(behind), None, "its life is over");
}

#[test]
fn the_uri_names_namespace_and_role() {
    for (uri, want) in [
        ("baremetal://fleet/0011/live", Some(("fleet", Role::Live))),
        ("baremetal://fleet/0011/installed", Some(("fleet", Role::Installed))),
        ("baremetal://fleet/0011/admin", None),
        ("baremetal://fleet/0011", None),
        ("baremetal://fleet/host-1/uid/live", None),
        ("baremetal:///0011/live", None),
        ("https://fleet/0011/live", None),
    ] {
        let parsed = parse_uri(uri);
        assert_eq!(parsed.as_ref().map(|(namespace, role)| (namespace.as_str(), *role)), want, "{uri}");
    }
}

#[test]
fn a_certificate_for_another_key_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = Identity::load_or_make(one.path()).unwrap();
    let other = Identity::load_or_make(other.path()).unwrap();
    let refused = Certificate::parse(&issue_certificate(&other, "live"), &one.public_key()).unwrap_err();
    assert!(refused.message.contains("for another key"), "{refused}");
    for chain in ["nonsense".to_owned(), issue_certificate(&one, "other-role")] {
        assert!(Certificate::parse(&chain, &one.public_key()).is_err());
    }
}
