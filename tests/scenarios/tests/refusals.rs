//! What the coordinator says when it turns a host away, as the host's console
//! shows it.

use agent::client::calls::CallError;
use agent::error::explain;
use agent::live::register::AttemptError;
use coordinator::rpc::RpcError;
use proto::refusal::Refusal;
use tonic::Status;

#[test]
fn a_refusal_is_one_line_that_says_everything_once() {
    for refusal in Refusal::ALL {
        let status = Status::from(RpcError::refused(refusal, "what it was"));
        let shown = explain(&AttemptError::from(CallError::from(status)));
        let want = format!("refused ({}): what it was; next: {}", refusal.code(), refusal.next_action());
        assert_eq!(shown, want);
    }
}

#[test]
fn a_coordinator_in_trouble_is_said_with_what_to_do_if_it_stays() {
    let shown = explain(&CallError::from(Status::from(RpcError::ShuttingDown)));
    assert!(shown.contains("shutting down") && shown.contains("; next: none at first"), "{shown}");
}
