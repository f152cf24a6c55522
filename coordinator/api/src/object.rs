//! The place of an object: its namespace and its name, which cannot be mixed up.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use kube::ResourceExt;

/// Declares a string newtype whose copies share their text.
macro_rules! shared_text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

shared_text! {
    /// The namespace of an object; empty for an object of the whole cluster.
    Namespace
}
shared_text! {
    /// The name of an object, unique for its kind in its namespace.
    ObjectName
}

impl Namespace {
    /// The namespace of `object`.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self(object.meta().namespace.as_deref().unwrap_or("").into())
    }
}

impl ObjectName {
    /// The name of `object`.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self(object.meta().name.as_deref().unwrap_or("").into())
    }
}

/// Namespace and name of an object whose kind is known from the context. Copies share their
/// texts, so that a look-up in a large map does not allocate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for an object of the whole cluster.
    pub namespace: Namespace,
    /// Unique for its kind in the namespace.
    pub name: ObjectName,
}

impl Key {
    /// The key of an object that may not exist.
    pub fn new(namespace: impl Into<Namespace>, name: impl Into<ObjectName>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of `object`.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: Namespace::of(object), name: ObjectName::of(object) }
    }

    /// The key of the object `name` in the same namespace.
    pub fn in_namespace_of(&self, name: &str) -> Self {
        Self::new(self.namespace.clone(), name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}
