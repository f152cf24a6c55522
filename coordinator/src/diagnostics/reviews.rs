//! The API server's word on the token of a caller: a `TokenReview` tells who it is, and a
//! `SubjectAccessReview` whether it may read the metrics. Words are remembered, so that a scrape usually
//! costs no API request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::PATH;
use crate::listener::Source;
use crate::rpc::{Buckets, Rate};
use crate::telemetry::chain;

/// Most bytes of a token. Those of service accounts have about one KiB.
const TOKEN_BYTES: usize = 8 << 10;
/// A right that was taken away is used at most so long, and one that was given is seen after this time.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most verdicts that are remembered.
const VERDICTS: usize = 256;
/// Reviews of one source, so that tokens of a program that guesses do not load the API server.
const REVIEWS_PER_MINUTE: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// The API server does not know the token, or there is none.
    Unknown,
    /// The API server knows the caller, who lacks the right.
    Forbidden,
    /// The source has had its reviews of the minute.
    TooMany,
    /// The API server gave no word.
    Failed,
}

struct Known {
    verdict: Verdict,
    until: Instant,
}

pub(super) struct Reviews {
    client: Client,
    /// By the hash of the token, so that no token is held in memory longer than its request.
    known: Mutex<HashMap<[u8; 32], Known>>,
    rates: Buckets<Source>,
}

/// The bearer token of a request; `None` if there is none, or one that no API server gives out.
pub(super) fn read_token(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.len() <= TOKEN_BYTES && !token.contains(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then(|| token.to_owned())
}

impl Reviews {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default(), rates: Buckets::default() }
    }

    pub(super) async fn judge_token(&self, token: String, source: IpAddr) -> Verdict {
        let hash: [u8; 32] = Sha256::digest(&token).into();
        if let Some(verdict) = self.recall(&hash, Instant::now()) {
            return verdict;
        }
        let rate = Rate::per_minute(REVIEWS_PER_MINUTE);
        if !self.rates.take_token(Source::from(source), rate, Instant::now()) {
            return Verdict::TooMany;
        }
        match self.review(token).await {
            Ok(verdict) => {
                self.remember(hash, verdict, Instant::now());
                verdict
            }
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    next_action = "apply rbac.yaml of this version if a right is missing",
                    "cannot review the token of a scrape, answered with 500"
                );
                Verdict::Failed
            }
        }
    }

    async fn review(&self, token: String) -> kube::Result<Verdict> {
        let spec = TokenReviewSpec { token, ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        match status.user {
            Some(user) if status.authenticated == Some(true) => self.review_access(user).await,
            _ => Ok(Verdict::Unknown),
        }
    }

    async fn review_access(&self, user: UserInfo) -> kube::Result<Verdict> {
        let path = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
        let UserInfo { extra, groups, uid, username: user } = user;
        let non_resource_attributes = Some(path);
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user,
            non_resource_attributes,
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let accesses: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let status = accesses.create(&PostParams::default(), &review).await?.status;
        let is_allowed = status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recall(&self, hash: &[u8; 32], now: Instant) -> Option<Verdict> {
        self.lock().get(hash).filter(|known| known.until > now).map(|known| known.verdict)
    }

    /// A refusal gives way to an allowance, so that guessed tokens displace no scraper.
    fn remember(&self, hash: [u8; 32], verdict: Verdict, now: Instant) {
        let mut known = self.lock();
        known.retain(|_, known| known.until > now);
        let is_allowed = verdict == Verdict::Allowed;
        if known.len() >= VERDICTS {
            let refused = known.iter().find(|(_, known)| known.verdict != Verdict::Allowed);
            let refused = refused.filter(|_| is_allowed).map(|(hash, _)| *hash);
            let Some(refused) = refused else { return };
            known.remove(&refused);
        }
        let until = now + if is_allowed { ALLOWED_FOR } else { REFUSED_FOR };
        known.insert(hash, Known { verdict, until });
    }

    #[cfg(test)]
    pub(super) fn count_known(&self) -> usize {
        self.lock().len()
    }
}
