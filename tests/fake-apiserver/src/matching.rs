//! Which requests a fault is for.

use crate::request::{Request, Verb};

/// A pattern for requests; every part that is not set matches all.
///
/// ```
/// use fake_apiserver::{Matching, Verb};
/// let claims = Matching::writes().verb(Verb::Patch).resource("machineinventories");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Matching {
    user: Option<String>,
    verb: Option<Verb>,
    resource: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    only_writes: bool,
    pub(crate) skip: usize,
}

impl Matching {
    pub fn any() -> Self {
        Self::default()
    }

    /// Every request that may change something.
    pub fn writes() -> Self {
        Self { only_writes: true, ..Self::default() }
    }

    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.into());
        self
    }

    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// On the object of this name. Never matches a create: its name is in the body.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// On this subresource; `""` for the object proper.
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Lets the first `skip` of them through: `after(2)` begins with the third.
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Does the pattern fit?
    pub fn fits(&self, request: &Request) -> bool {
        let same =
            |wanted: &Option<String>, given: &str| wanted.as_deref().is_none_or(|wanted| wanted == given);
        same(&self.user, &request.user)
            && self.verb.is_none_or(|verb| verb == request.verb)
            && same(&self.resource, &request.resource)
            && same(&self.name, &request.name)
            && same(&self.subresource, &request.subresource)
            && (!self.only_writes || request.verb.is_write())
    }
}
