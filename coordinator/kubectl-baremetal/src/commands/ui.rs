//! The command `ui`.

use serde_json::json;

use crate::arguments::UiArguments;
use crate::cluster::Cluster;
use crate::failure::{Exit, Failure};
use crate::ui::{Follower, Page, serve};

pub(super) async fn show_page(cluster: &Cluster, arguments: &UiArguments) -> Result<Exit, Failure> {
    let (owner, followed) = Follower::new(cluster)?;
    let place = json!({ "context": cluster.context, "namespace": cluster.namespace });
    let page = Page::open(followed, &place.to_string(), arguments.port).await?;
    anstream::println!("{}", page.url);
    anstream::eprintln!("the link is a password; Ctrl-C ends the page");
    if !arguments.no_open
        && let Err(error) = open::that_detached(&page.once)
    {
        anstream::eprintln!("cannot open a browser ({error}): open the link yourself");
    }
    tokio::select! {
        followed = owner.run() => followed?,
        served = serve(page) => served?,
    }
    Ok(Exit::Done)
}
