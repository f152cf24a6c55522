//! Pointers from the name of a base to a file of the cache.
//!
//! A source has a pointer to the version that it had at the last request, and a pointer to each
//! stored version, because a seed image keeps the version that it was made from.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tokio::fs;

use super::{BaseImage, BaseImageError, BaseImages, Wanted, check_digest, hexadecimal, ledger};

/// The file of a source.
#[derive(Debug, PartialEq, Eq)]
struct Pointer<'a> {
    sha256: &'a str,
    size: u64,
    /// Digest of the manifest that the file is from.
    manifest: Option<&'a str>,
}

impl Wanted {
    /// Keys of the pointers to an arrived base. The key of the tag is not among them if a digest was
    /// asked for, because the tag may name another manifest now.
    pub(super) fn pointer_keys(&self, key: &str, sha256: &str) -> Vec<String> {
        let newest = self.manifest.is_none().then(|| key.to_owned());
        newest.into_iter().chain([content_key(key, sha256)]).collect()
    }
}

impl BaseImages {
    fn pointer_path(&self, key: &str) -> PathBuf {
        self.ledger.directory().join(format!("{}{}", hex::encode(Sha256::digest(key)), ledger::POINTER))
    }

    /// Finds the stored base of a source. The pointer of a digest leads also to versions that the
    /// source had before.
    pub(super) async fn find_stored(&self, key: &str, digest: Option<&str>) -> Option<BaseImage> {
        if let Some(image) = self.follow_pointer(key, digest).await {
            return Some(image);
        }
        self.follow_pointer(&content_key(key, hexadecimal(digest?)), digest).await
    }

    async fn follow_pointer(&self, key: &str, digest: Option<&str>) -> Option<BaseImage> {
        let text = fs::read_to_string(self.pointer_path(key)).await.ok()?;
        let Pointer { sha256, size, manifest } = parse_pointer(&text)?;
        check_digest(key, sha256, digest).ok()?;
        let lease = self.ledger.lease_file(sha256)?;
        let path = self.ledger.file_path(sha256);
        let is_there = fs::metadata(&path).await.ok()?.len() == size;
        let (sha256, manifest) = (sha256.to_owned(), manifest.map(str::to_owned));
        is_there.then_some(BaseImage { path, size, sha256, manifest, lease })
    }

    /// Lets each key lead to the image.
    pub(super) async fn point_to(
        &self,
        keys: &[String],
        image: BaseImage,
    ) -> Result<BaseImage, BaseImageError> {
        let mut text = format!("{} {}", image.sha256, image.size);
        if let Some(digest) = &image.manifest {
            text.extend([" ", digest]);
        }
        text.push('\n');
        for key in keys {
            let directory = self.ledger.directory().to_owned();
            let (path, text) = (self.pointer_path(key), text.clone());
            let written = tokio::task::spawn_blocking(move || replace_file(&directory, &path, &text)).await;
            written.map_err(io::Error::other).flatten().map_err(|source| self.ledger.store_error(source))?;
        }
        Ok(image)
    }
}

/// Replaces the file by a rename, because replicas may share the directory and read the file.
fn replace_file(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let temporary = tempfile::Builder::new().prefix(ledger::TEMPORARY).tempfile_in(directory)?;
    std::fs::write(temporary.path(), text)?;
    temporary.into_temp_path().persist(path).map_err(|error| error.error)
}

/// Key of the pointer to one version of the base of `key`.
fn content_key(key: &str, sha256: &str) -> String {
    format!("{key} {sha256}")
}

fn parse_pointer(text: &str) -> Option<Pointer<'_>> {
    let (sha256, rest) = text.trim().split_once(' ')?;
    let (size, manifest) = rest.split_once(' ').map_or((rest, None), |(size, digest)| (size, Some(digest)));
    let hex = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(())?;
    Some(Pointer { sha256, size: size.parse().ok()?, manifest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_valid_pointer_is_read() {
        let hash = "ab".repeat(32);
        for (text, want) in [
            (format!("{hash} 12\n"), Some((12, None))),
            (format!("{hash} 12 sha256:{hash}\n"), Some((12, Some(format!("sha256:{hash}"))))),
            (hash.clone(), None),
            (format!("{hash} many"), None),
            ("../../etc/passwd 1".to_owned(), None),
        ] {
            let found = parse_pointer(&text).map(|found| (found.size, found.manifest.map(str::to_owned)));
            assert_eq!(found, want, "{text}");
        }
    }
}
