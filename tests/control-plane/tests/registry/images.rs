//! Layers made on the spot.

use std::io::Write as _;

pub(crate) const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

/// A file that says that it is an ISO 9660 image.
pub(crate) fn iso(fill: u8) -> Vec<u8> {
    let mut iso = vec![fill; 100_000];
    iso[32769..32774].copy_from_slice(b"CD001");
    iso
}

/// A name that ends in a slash is a directory.
pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(vec![]);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if path.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}
