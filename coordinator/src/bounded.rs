//! Texts, lists and maps of documents that are not trusted: decoding ends at the first part above a bound.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Expected, MapAccess, SeqAccess, Visitor};

/// A text of at most `MOST` bytes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<const MOST: usize>(pub(crate) String);

impl<'de, const MOST: usize> Deserialize<'de> for Text<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<const MOST: usize>;

        impl<const MOST: usize> Visitor<'_> for TextVisitor<MOST> {
            type Value = Text<MOST>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a text of at most {MOST} bytes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text.len() > MOST {
                    return Err(E::invalid_length(text.len(), &self));
                }
                Ok(Text(text.to_owned()))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Decodes up to `most` parts, and ends at the first one above the bound.
fn collect_bounded<T, E: serde::de::Error>(
    most: usize,
    expected: &dyn Expected,
    mut next: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Vec<T>, E> {
    let mut parts = vec![];
    while let Some(part) = next()? {
        if parts.len() == most {
            return Err(E::invalid_length(most + 1, expected));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// A list of at most `MOST` items. Decoding ends at the first item above the bound.
#[derive(Debug)]
pub(crate) struct Items<T, const MOST: usize>(pub(crate) Vec<T>);

impl<T, const MOST: usize> Default for Items<T, MOST> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Items<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ItemsVisitor<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for ItemsVisitor<T, MOST> {
            type Value = Items<T, MOST>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "at most {MOST} items")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Items(vec![]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                collect_bounded(MOST, &self, || sequence.next_element()).map(Items)
            }
        }

        deserializer.deserialize_any(ItemsVisitor(PhantomData))
    }
}

/// A map of at most `MOST` entries.
#[derive(Debug)]
pub(crate) struct Entries<K, V, const MOST: usize>(pub(crate) Vec<(K, V)>);

impl<K, V, const MOST: usize> Default for Entries<K, V, MOST> {
    fn default() -> Self {
        Self(vec![])
    }
}

impl<'de, K, V, const MOST: usize> Deserialize<'de> for Entries<K, V, MOST>
where
    K: Deserialize<'de>,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<K, V, const MOST: usize>(PhantomData<(K, V)>);

        impl<'de, K, V, const MOST: usize> Visitor<'de> for EntriesVisitor<K, V, MOST>
        where
            K: Deserialize<'de>,
            V: Deserialize<'de>,
        {
            type Value = Entries<K, V, MOST>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "at most {MOST} entries")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Entries(vec![]))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                collect_bounded(MOST, &self, || map.next_entry()).map(Entries)
            }
        }

        deserializer.deserialize_any(EntriesVisitor(PhantomData))
    }
}
