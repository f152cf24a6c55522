//! A vendor of TPMs: a CA and the certificates of its endorsement keys.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SubjectPublicKeyInfo,
};

const ENDORSEMENT_USAGE: [u64; 5] = [2, 23, 133, 8, 1];

/// A CA for TPMs.
pub struct Vendor {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, PEM: what an operator puts into the Secret `tpm-ca`.
    pub authority: String,
}

impl std::fmt::Debug for Vendor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Vendor(…)")
    }
}

impl Vendor {
    /// A vendor of that name, valid from 2020 to 2040.
    pub fn new(name: &str) -> Self {
        Self::edited(name, |_| {})
    }

    /// The same, with another certificate.
    pub fn edited(name: &str, edit: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        edit(&mut params);
        let authority = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), authority }
    }

    /// The certificate of an endorsement key, PKIX DER, as DER.
    pub fn certify(&self, public_key: &[u8], edit: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(ENDORSEMENT_USAGE.to_vec())];
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        edit(&mut params);
        let key = SubjectPublicKeyInfo::from_der(public_key).unwrap();
        params.signed_by(&key, &self.issuer).unwrap().der().to_vec()
    }
}
