//! The memory that the seed ISOs of a replica take together.

use std::collections::BTreeMap;

use coordinator_api::seed_image::SeedImage;
use kube::runtime::reflector::ObjectRef;

/// Bytes that the seed ISOs of all namespaces may keep, and those of one. A usual one keeps 64 KiB, and no one
/// keeps more than [`KEPT_BYTES`](super::changes::KEPT_BYTES).
const KEPT: u64 = 192 << 20;
const NAMESPACE_KEPT: u64 = 64 << 20;

/// The ISOs to drop, so that the rest fits beside the newest: the largest first, of the namespace that keeps
/// most. What keeps little is therefore not made again for what keeps much.
pub(super) fn find_surplus(
    mut others: Vec<(&ObjectRef<SeedImage>, u64)>,
    newest: (&ObjectRef<SeedImage>, u64),
) -> Vec<ObjectRef<SeedImage>> {
    others.sort_by_key(|(_, kept)| *kept);
    let mut sums = BTreeMap::<_, u64>::new();
    for (seed, kept) in others.iter().chain([&newest]) {
        *sums.entry(seed.namespace.as_deref()).or_default() += kept;
    }
    let mut dropped = vec![];
    while let Some(largest) = sums.iter().map(|(namespace, sum)| (*sum, *namespace)).max() {
        let (sum, namespace) = largest;
        if sum <= NAMESPACE_KEPT && sums.values().sum::<u64>() <= KEPT {
            break;
        }
        match others.iter().rposition(|(seed, _)| seed.namespace.as_deref() == namespace) {
            Some(index) => {
                let (seed, kept) = others.remove(index);
                sums.insert(namespace, sum - kept);
                dropped.push(seed.clone());
            }
            // What the newest keeps stays.
            None => drop(sums.remove(&namespace)),
        }
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn seeds(namespace: &str, count: usize) -> Vec<ObjectRef<SeedImage>> {
        (0..count).map(|number| ObjectRef::new(&format!("seed-{number}")).within(namespace)).collect()
    }

    /// Names of what is dropped beside a newest of 64 KiB in namespace `a`.
    fn surplus(kept: &[(&[ObjectRef<SeedImage>], u64)]) -> Vec<String> {
        let newest = ObjectRef::new("newest").within("a");
        let all = kept.iter().flat_map(|(seeds, kept)| seeds.iter().map(|seed| (seed, *kept)));
        find_surplus(all.collect(), (&newest, 64 << 10)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn crafted_bases_take_their_own_share() {
        let (crafted, usual) = (seeds("a", 100), seeds("b", 1000));
        let dropped = surplus(&[(&crafted, 16 * MIB), (&usual, 64 << 10)]);
        assert_eq!(dropped.len(), 97, "three and the newest fit into the share of a namespace");
        assert!(dropped.iter().all(|seed| seed.contains(".a")), "{dropped:?}");
        let shares: Vec<_> = ["a", "b", "c", "d", "e"].map(|namespace| seeds(namespace, 4)).into();
        let full: Vec<_> = shares.iter().map(|seeds| (seeds.as_slice(), 15 * MIB)).collect();
        assert_eq!(surplus(&full).len(), 20 - 12, "the share of all");
    }

    #[test]
    fn newest_is_kept_and_usual_ones_fit() {
        assert!(surplus(&[]).is_empty());
        assert!(surplus(&[(&seeds("a", 1000), 64 << 10)]).is_empty());
        let newest = ObjectRef::new("newest").within("a");
        let (small, large) = (seeds("a", 2), seeds("b", 1));
        let others = vec![(&small[0], MIB), (&small[1], 2 * MIB), (&large[0], 40 * MIB)];
        let dropped = find_surplus(others, (&newest, 2 * NAMESPACE_KEPT));
        assert_eq!(
            dropped,
            [small[1].clone(), small[0].clone()],
            "what keeps more than its share stays alone"
        );
    }
}
