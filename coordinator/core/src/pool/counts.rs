//! How often each value occurs.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Counts<T>(BTreeMap<T, usize>);

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Counts<T> {
    pub(super) fn count(&mut self, value: Option<T>) {
        if let Some(value) = value {
            *self.0.entry(value).or_default() += 1;
        }
    }

    pub(super) fn discount(&mut self, value: Option<&T>) {
        let Some(value) = value else { return };
        if let Some(count) = self.0.get_mut(value) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(value);
            }
        }
    }

    /// Each value once, in order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.keys()
    }
}
