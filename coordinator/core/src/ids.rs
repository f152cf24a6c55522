//! Names that were parsed where they arrived.

use std::borrow::Borrow;
use std::fmt;

/// Declares a string newtype that cannot be mixed up with another.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// `None` for the empty text.
            pub fn parse(text: &str) -> Option<Self> {
                (!text.is_empty()).then(|| Self(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_id! {
    /// Name of a `MachineInventory`; unique in its namespace.
    HostName
}
text_id! {
    /// `metadata.uid` of an object: a hint, since restores and moves change it.
    Uid
}
