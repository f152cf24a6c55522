//! Client of a registry: the pull half of the API, over TLS.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coordinator_core::seed_image::pull_secret::Credentials;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_auth::ChallengeRef;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use oci_spec::distribution::Reference;
use serde::Deserialize;

use super::BaseImageError;
use super::execute::Order;
use super::fetch::Fetcher;

/// Largest size in bytes of the answer of a token server.
const TOKEN_SIZE: usize = 1 << 20;
/// Deadline of a small document.
const DOCUMENT_TIME: Duration = Duration::from_mins(1);

/// A registry, for the requests about a single image.
pub(super) struct Registry<'a> {
    fetcher: &'a Fetcher,
    image: &'a Reference,
    /// Name of the image in errors.
    pub(super) shown: String,
    pull_secret: Option<&'a str>,
    credentials: Option<&'a Credentials>,
    authorization: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Registry<'a> {
    pub(super) fn new(fetcher: &'a Fetcher, image: &'a Reference, order: &'a Order) -> Self {
        let (pull_secret, credentials) = (order.pull_secret.as_deref(), order.credentials.as_ref());
        Self { fetcher, image, shown: image.whole(), pull_secret, credentials, authorization: None }
    }

    /// `GET /v2/<repository>/<path>`, repeated with authorization if the registry asks for it.
    pub(super) async fn get(
        &mut self,
        path: &str,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, BaseImageError> {
        let (host, repository) = (self.image.resolve_registry(), self.image.repository());
        let uri = format!("https://{host}/v2/{repository}/{path}");
        let uri: Uri = uri.parse().map_err(|_| self.fetch_error("it is no address"))?;
        let mut response = self.send(uri.clone(), accept).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.authorization = Some(self.authorize(response.headers()).await?);
            response = self.send(uri, accept).await?;
        }
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.unauthorized()),
            StatusCode::NOT_FOUND => Err(BaseImageError::NotFound { url: self.shown.clone() }),
            status => Err(BaseImageError::Status { url: self.shown.clone(), status }),
        }
    }

    /// A document of at most `limit` bytes.
    pub(super) async fn get_document(
        &mut self,
        path: &str,
        accept: Option<&'static str>,
        limit: usize,
    ) -> Result<Vec<u8>, BaseImageError> {
        let response = self.get(path, accept).await?;
        self.read_document(response, limit).await
    }

    pub(super) fn fetch_error(&self, reason: &str) -> BaseImageError {
        BaseImageError::fetch(&self.shown, reason)
    }

    pub(super) fn malformed(&self, reason: &str) -> BaseImageError {
        BaseImageError::Malformed { image: self.shown.clone(), reason: reason.to_owned() }
    }

    async fn send(
        &self,
        uri: Uri,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, BaseImageError> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        self.fetcher.follow_redirects(&self.shown, uri, headers).await
    }

    /// The answer to a challenge: a token if the registry has a token server, else the credentials.
    async fn authorize(&self, headers: &HeaderMap) -> Result<HeaderValue, BaseImageError> {
        let texts = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> =
            texts.filter_map(|text| http_auth::parse_challenges(text).ok()).flatten().collect();
        if let Some(bearer) = find_challenge(&challenges, "bearer") {
            let token = self.request_token(bearer).await?;
            return self.header_value(&format!("Bearer {token}"));
        }
        match (find_challenge(&challenges, "basic"), self.credentials) {
            (Some(_), Some(credentials)) => self.header_value(&basic(credentials)),
            _ => Err(self.unauthorized()),
        }
    }

    /// URL of the token server; `None` unless it is https, because credentials are sent there.
    fn token_uri(&self, challenge: &ChallengeRef<'_>) -> Option<Uri> {
        let realm = find_parameter(challenge, "realm")?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(service) = find_parameter(challenge, "service") {
            query.append_pair("service", &service);
        }
        query.append_pair("scope", &format!("repository:{}:pull", self.image.repository()));
        let separator = if realm.contains('?') { '&' } else { '?' };
        let uri = format!("{realm}{separator}{}", query.finish()).parse::<Uri>().ok();
        uri.filter(|uri| uri.scheme_str() == Some("https"))
    }

    async fn request_token(&self, challenge: &ChallengeRef<'_>) -> Result<String, BaseImageError> {
        let uri = self.token_uri(challenge);
        let uri = uri.ok_or_else(|| self.fetch_error("its token server has no https URL"))?;
        let mut headers = HeaderMap::new();
        if let Some(credentials) = self.credentials {
            headers.insert(header::AUTHORIZATION, self.header_value(&basic(credentials))?);
        }
        let response = self.fetcher.follow_redirects(&self.shown, uri, headers).await?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.unauthorized()),
            status => return Err(BaseImageError::Status { url: self.shown.clone(), status }),
        }
        let answer = self.read_document(response, TOKEN_SIZE).await?;
        let answer: Option<TokenAnswer> = serde_json::from_slice(&answer).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token));
        token.ok_or_else(|| self.fetch_error("its token server sends no token"))
    }

    async fn read_document(
        &self,
        response: Response<Incoming>,
        limit: usize,
    ) -> Result<Vec<u8>, BaseImageError> {
        let body = Limited::new(response.into_body(), limit).collect();
        let read = tokio::time::timeout(DOCUMENT_TIME, body).await;
        let read = read.map_err(|_| self.fetch_error("no answer in time"))?;
        let read = read.map_err(|error| self.fetch_error(&error.to_string()))?;
        Ok(read.to_bytes().to_vec())
    }

    fn header_value(&self, text: &str) -> Result<HeaderValue, BaseImageError> {
        let mut value = HeaderValue::from_str(text).map_err(|_| self.unauthorized())?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn unauthorized(&self) -> BaseImageError {
        let (user, action) = match self.pull_secret {
            Some(name) => (
                format!("the user of Secret {name}"),
                format!("correct Secret {name} of spec.baseImagePullSecret"),
            ),
            None => (
                "anonymous users".to_owned(),
                "name a Secret with credentials in spec.baseImagePullSecret".to_owned(),
            ),
        };
        BaseImageError::Unauthorized { image: self.shown.clone(), user, action }
    }
}

fn find_challenge<'a, 'i>(challenges: &'a [ChallengeRef<'i>], scheme: &str) -> Option<&'a ChallengeRef<'i>> {
    challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme))
}

fn find_parameter(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_unescaped())
}

fn basic(credentials: &Credentials) -> String {
    let Credentials { username, password } = credentials;
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}
