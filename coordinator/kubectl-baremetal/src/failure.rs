//! How a command ends.

use std::error::Error;
use std::process::ExitCode;

use coordinator_api::explain::Attention;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    NotFound,
    Refused,
    Waits,
    NeedsAction,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Refused => 4,
            Exit::Waits => 10,
            Exit::NeedsAction => 11,
        })
    }
}

impl From<Attention> for Exit {
    fn from(attention: Attention) -> Self {
        match attention {
            Attention::None => Self::Done,
            Attention::Wait => Self::Waits,
            Attention::Act => Self::NeedsAction,
        }
    }
}

/// The cause for which a command failed, with the next action.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the kubeconfig cannot be used: {0}; name another one by --kubeconfig or --context")]
    Kubeconfig(String),
    #[error("{what}: {cause}")]
    Request { what: String, cause: String },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Refused(String),
    #[error("{what}: {source}")]
    File { what: String, source: std::io::Error },
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Refused(_) => Exit::Refused,
            Self::Kubeconfig(_) | Self::Request { .. } | Self::File { .. } => Exit::Failed,
        }
    }

    pub(crate) fn kubeconfig(error: impl Error) -> Self {
        Self::Kubeconfig(error.to_string())
    }

    /// The failure of a request to the API server.
    pub(crate) fn request(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |error| match &error {
            kube::Error::Api(status) if status.code == 404 => {
                Self::NotFound(format!("{what}: {}", status.message))
            }
            _ => Self::Request { what, cause: explain_error(&error) },
        }
    }

    /// The failure to write a value in its format.
    pub(crate) fn format<E: Error>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Request { what: what.to_owned(), cause: error.to_string() }
    }

    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::File { what, source }
    }
}

pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The answer of the API server, or the cause for which there is none, with the next action.
pub(crate) fn explain_error(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let action = match status.code {
                401 => "; log in again, or choose another --context",
                403 => "; ask for a role that allows it",
                409 => "; the object has changed meanwhile: try again",
                _ => "",
            };
            format!("{}{action}", status.message)
        }
        other => {
            let cause = chain(other);
            format!("{cause}; check the address in the kubeconfig and the connection")
        }
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api_error(code: u16) -> kube::Error {
        let message = "machines is forbidden".to_owned();
        kube::Error::Api(Box::new(Status { code, message, ..Status::default() }))
    }

    #[test]
    fn failures_give_action_and_exit_code() {
        for (code, exit, part) in [
            (401, Exit::Failed, "log in again"),
            (403, Exit::Failed, "ask for a role"),
            (404, Exit::NotFound, "list Machine: machines is forbidden"),
            (409, Exit::Failed, "try again"),
            (500, Exit::Failed, "list Machine: machines is forbidden"),
        ] {
            let failure = Failure::request("list Machine")(api_error(code));
            assert_eq!(failure.exit(), exit, "{code}");
            assert!(failure.to_string().contains(part), "{code}: {failure}");
        }
        assert_eq!(Failure::Refused(String::new()).exit(), Exit::Refused);
    }

    #[test]
    fn attention_is_the_exit_of_why() {
        let exits = [Attention::None, Attention::Wait, Attention::Act].map(Exit::from);
        assert_eq!(exits, [Exit::Done, Exit::Waits, Exit::NeedsAction]);
    }
}
