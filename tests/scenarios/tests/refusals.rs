//! What the coordinator says when it turns a host away, as the host's console
//! shows it.

use agent::client::calls::CallError;
use agent::error::explain;
use agent::live::register::AttemptError;
use coordinator::rpc::RpcError;
use proto::refusal::Refusal;
use tonic::Status;

#[test]
fn refusal_is_one_line_without_repetition() {
    for refusal in Refusal::ALL {
        let status = Status::from(RpcError::from_refusal(refusal, "what it was"));
        let shown = explain(&AttemptError::from(CallError::from(status)));
        let want = format!("refused ({}): what it was; next: {}", refusal.code(), refusal.next_action());
        assert_eq!(shown, want);
    }
}

#[test]
fn internal_error_names_a_next_action() {
    let shown = explain(&CallError::from(Status::from(RpcError::ShuttingDown)));
    assert!(shown.contains("shutting down") && shown.contains("; next: none at first"), "{shown}");
}
