//! Plays the committed corpus, and random changes of it: bytes are replaced, removed, repeated and exchanged between
//! two inputs. `FUZZ_CHANGES` is the number of changes of a target, `PROPTEST_RNG_SEED` their seed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy exempts only functions marked as tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fuzz::{Target, find_target, list_names};

/// Pieces of text with a meaning in the formats of the targets.
const PIECES: [&[u8]; 14] = [
    b"\n",
    b"\"",
    b"{",
    b"}",
    b"[",
    b"]",
    b": ",
    b"- ",
    b"\0",
    b"\xff\xff\xff\xff",
    b"{{",
    b"'",
    b"&a *a",
    b"\xef\xbb\xbf",
];

fn read_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn read_corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{target} has no corpus: {error}"));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn change(input: &[u8], other: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..16)).min(bytes.len());
        match random.u8(..5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            3 => {
                let piece = random.choice(PIECES).unwrap();
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
            _ => {
                let from = random.usize(..=other.len());
                let piece = &other[from..(from + random.usize(..64)).min(other.len())];
                drop(bytes.splice(at..end, piece.iter().copied()));
            }
        }
    }
    bytes
}

fn play(target: Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        let kept = std::env::temp_dir().join(format!("fuzz-{}", target.name));
        std::fs::write(&kept, input).unwrap();
        panic!(
            "{} fails with the bytes of {}: {:?}",
            target.name,
            kept.display(),
            String::from_utf8_lossy(input)
        );
    }
}

fn play_corpus(name: &str) {
    let target = find_target(name).unwrap();
    let corpus = read_corpus(name);
    assert!(!corpus.is_empty(), "{name} has no corpus");
    for input in &corpus {
        play(target, input);
    }
    let mut random = fastrand::Rng::with_seed(read_number("PROPTEST_RNG_SEED", 1));
    for _ in 0..read_number("FUZZ_CHANGES", 500) {
        let [input, other] = [(); 2].map(|()| random.choice(&corpus).unwrap());
        play(target, &change(input, other, &mut random));
    }
}

macro_rules! play_targets {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            play_corpus($name);
        })*

        #[test]
        fn each_target_is_played() {
            assert_eq!(list_names(), [$($name),*]);
        }
    };
}

play_targets! {
    plan: "plan",
    registration: "registration",
    attestation: "attestation",
    certificate: "certificate",
    oci: "oci",
    iso: "iso",
    seed: "seed",
    cloud_config: "cloud-config",
    network: "network",
    journal: "journal",
    workload: "workload",
    image: "image",
}
