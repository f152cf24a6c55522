//! The search for the base ISO among the files of an image.
//!
//! Layers are read from the top down, so that the search knows the files that upper layers hide.
//! Nothing is unpacked; paths are only compared.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Conventional directory of the base ISO.
const CONVENTION: &str = "elemental-iso";
/// Bound of the names of one image. A system has a fifth of them.
const NAMES: usize = 512 << 10;
/// Bound of the names in a message.
const LISTED: usize = 10;
/// Longest path of Linux.
const PATH: usize = 4096;
const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// The names of an image exceed their bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyNames;

/// No file, or several ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ambiguous {
    /// The first files.
    pub names: Vec<String>,
    pub more: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Directory,
    Other,
}

/// Effect of an entry on lower layers.
#[derive(Clone, Copy, Debug, Default)]
struct Cover {
    hides_itself: bool,
    hides_below: bool,
}

/// The search of one image. Paths are kept by their hashes, so that long names take no memory; two paths of
/// one hash could only hide a file of the same image.
#[derive(Debug, Default)]
pub struct Search {
    upper: HashMap<u64, Cover>,
    layer: Vec<(u64, Cover)>,
    names: usize,
    conventional: Ambiguous,
    others: Ambiguous,
}

impl Ambiguous {
    fn count(&self) -> usize {
        self.names.len() + self.more
    }

    fn add(&mut self, name: &str) {
        if self.names.len() < LISTED {
            self.names.push(name.to_owned());
        } else {
            self.more += 1;
        }
    }
}

impl Search {
    /// Records an entry, and returns its path in the image. `None` if an upper layer hides the
    /// entry, or it is no file or directory of the image.
    pub fn see_entry(&mut self, path: &str, kind: EntryKind) -> Result<Option<String>, TooManyNames> {
        let Some(path) = normalize_path(path) else { return Ok(None) };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if name == OPAQUE {
            self.cover(parent, Cover { hides_itself: false, hides_below: true })?;
            return Ok(None);
        }
        if let Some(removed) = name.strip_prefix(WHITEOUT) {
            let removed = if parent.is_empty() { removed.to_owned() } else { format!("{parent}/{removed}") };
            self.cover(&removed, Cover { hides_itself: true, hides_below: true })?;
            return Ok(None);
        }
        let is_visible = !self.is_hidden(&path);
        self.cover(&path, Cover { hides_itself: true, hides_below: kind == EntryKind::Other })?;
        Ok(is_visible.then_some(path))
    }

    /// Records a visible ISO. Returns true if the caller has to keep this ISO instead of an earlier
    /// one.
    pub fn record_iso(&mut self, path: &str) -> bool {
        let is_conventional = path.split_once('/').is_some_and(|(directory, name)| {
            directory == CONVENTION && !name.contains('/') && name.to_ascii_lowercase().ends_with(".iso")
        });
        let is_kept = self.conventional.count() == 0 && (is_conventional || self.others.count() == 0);
        if is_conventional {
            self.conventional.add(path);
        } else {
            self.others.add(path);
        }
        is_kept
    }

    /// Ends a layer; the next entries belong to the layer below.
    pub fn end_layer(&mut self) {
        for (path, cover) in self.layer.drain(..) {
            let known = self.upper.entry(path).or_default();
            known.hides_itself |= cover.hides_itself;
            known.hides_below |= cover.hides_below;
        }
    }

    /// Checks that the kept file is the only candidate.
    pub fn finish(self) -> Result<(), Ambiguous> {
        let found = if self.conventional.count() > 0 { self.conventional } else { self.others };
        if found.count() == 1 { Ok(()) } else { Err(found) }
    }

    fn cover(&mut self, path: &str, cover: Cover) -> Result<(), TooManyNames> {
        self.names += 1;
        if self.names > NAMES {
            return Err(TooManyNames);
        }
        self.layer.push((hash_of(path), cover));
        Ok(())
    }

    fn is_hidden(&self, path: &str) -> bool {
        let find = |path: &str| self.upper.get(&hash_of(path));
        let ancestors = path.match_indices('/').map(|(at, _)| &path[..at]);
        find(path).is_some_and(|cover| cover.hides_itself)
            || ancestors.chain([""]).any(|path| find(path).is_some_and(|cover| cover.hides_below))
    }
}

fn hash_of(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// The path without a leading slash; `None` for the root and for a path out of the image.
fn normalize_path(path: &str) -> Option<String> {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let is_path = !parts.is_empty() && !parts.contains(&"..") && path.len() <= PATH;
    is_path.then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Layers = &'static [&'static [&'static str]];

    /// Layers from the top down; a name that ends in a slash is a directory, all
    /// others are ISOs.
    fn search(layers: &[&[&str]]) -> (Result<(), Ambiguous>, Option<String>) {
        let (mut search, mut kept) = (Search::default(), None);
        for layer in layers {
            for path in *layer {
                let kind = if path.ends_with('/') { EntryKind::Directory } else { EntryKind::Other };
                let Some(visible) = search.see_entry(path, kind).unwrap() else { continue };
                if kind == EntryKind::Other && search.record_iso(&visible) {
                    kept = Some(visible);
                }
            }
            search.end_layer();
        }
        (search.finish(), kept)
    }

    #[test]
    fn single_iso_is_found_in_any_layer() {
        let cases: [(&str, Layers, Option<&str>); 15] = [
            ("alone", &[&["elemental-iso/", "elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("dotted", &[&["./elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("elsewhere", &[&["disk/os.img"]], Some("disk/os.img")),
            ("convention first", &[&["elemental-iso/a.iso", "b.iso"]], Some("elemental-iso/a.iso")),
            ("convention last", &[&["b.iso", "c.iso", "elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("below", &[&["etc/"], &["elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("replaced", &[&["elemental-iso/a.iso"], &["elemental-iso/a.iso"]], Some("elemental-iso/a.iso")),
            ("removed", &[&["elemental-iso/.wh.a.iso"], &["elemental-iso/a.iso"]], None),
            ("directory removed", &[&[".wh.elemental-iso"], &["elemental-iso/a.iso"]], None),
            (
                "opaque",
                &[&["elemental-iso/.wh..wh..opq", "elemental-iso/b.iso"], &["elemental-iso/a.iso"]],
                Some("elemental-iso/b.iso"),
            ),
            (
                "a file hides a directory",
                &[&["elemental-iso"], &["elemental-iso/a.iso"]],
                Some("elemental-iso"),
            ),
            (
                "a whiteout is for lower layers",
                &[&["elemental-iso/.wh.a.iso", "elemental-iso/a.iso"]],
                Some("elemental-iso/a.iso"),
            ),
            ("a whiteout below", &[&["a.iso"], &[".wh.a.iso"], &["a.iso"]], Some("a.iso")),
            ("outside", &[&["../a.iso"]], None),
            ("nothing", &[], None),
        ];
        for (name, layers, want) in cases {
            let (found, kept) = search(layers);
            assert_eq!(found.is_ok(), want.is_some(), "{name}: {found:?}");
            assert_eq!(kept.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn several_isos_are_listed() {
        for (layers, want) in [
            (&[&["a.iso", "b.iso"][..]][..], &["a.iso", "b.iso"][..]),
            (
                &[&["elemental-iso/b.iso"], &["elemental-iso/a.iso"]],
                &["elemental-iso/b.iso", "elemental-iso/a.iso"],
            ),
        ] {
            assert_eq!(search(layers).0.unwrap_err().names, want);
        }
        let many: Vec<_> = (0..12).map(|index| format!("{index}.iso")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let listed = search(&[&many]).0.unwrap_err();
        assert_eq!((listed.names.len(), listed.more), (10, 2));
    }

    #[test]
    fn names_are_bounded() {
        let mut search = Search::default();
        let refused = (0..1_000_000).find(|index| {
            search.see_entry(&format!("{index}/{}", "x".repeat(200)), EntryKind::Other).is_err()
        });
        assert_eq!(refused, Some(NAMES));
        assert_eq!(search.see_entry(&"x/".repeat(4096), EntryKind::Directory), Ok(None));
    }
}
