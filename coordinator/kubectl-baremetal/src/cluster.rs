//! The API server: the kinds that it serves, their objects, and their changes.

mod live;

use std::time::Duration;

use coordinator_api::names::plan_secret;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::discovery::Discovery;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config};

use crate::arguments::Connection;
use crate::failure::{Failure, explain_error, is_forbidden};
use crate::fleet::{Fleet, Id, Kind, Object};

#[cfg(test)]
pub(crate) use live::Change;
pub(crate) use live::Live;

const CONNECT_DEADLINE: Duration = Duration::from_secs(15);
/// Objects of one answer, because a list of thousands is read in pages.
const PAGE: u32 = 500;

/// A kind by the resource that serves it.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) kind: Kind,
    pub(crate) resource: ApiResource,
}

/// A connection, and the namespace that commands are about.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Empty for a kubeconfig without a current context.
    pub(crate) context: String,
    /// `None` stands for all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) served: Vec<Served>,
}

impl Cluster {
    /// Connects with the kubeconfig of the user, and asks for the kinds that are served.
    pub(crate) async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let read = match &connection.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let options =
            KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = read.map_err(Failure::kubeconfig)?;
        let context = connection.context.clone().or_else(|| kubeconfig.current_context.clone());
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(Failure::kubeconfig)?;
        config.connect_timeout = Some(CONNECT_DEADLINE);
        let own = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(Failure::kubeconfig)?;
        let served = discover(&client).await?;
        let namespace = (!connection.all_namespaces).then_some(own);
        Ok(Self { client, context: context.unwrap_or_default(), namespace, served })
    }

    /// The namespace of a command about one object.
    pub(crate) fn one_namespace(&self) -> Result<&str, Failure> {
        self.namespace
            .as_deref()
            .ok_or_else(|| Failure::Usage("name a namespace: the command is about one object".to_owned()))
    }

    pub(crate) fn served(&self, kind: Kind) -> Option<&Served> {
        self.served.iter().find(|served| served.kind == kind)
    }

    fn require(&self, kind: Kind) -> Result<&Served, Failure> {
        self.served(kind).ok_or_else(|| missing_kind(kind))
    }

    /// The API of a kind in the namespace of the command, or in all.
    fn api(&self, served: &Served) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &served.resource),
            None => Api::all_with(self.client.clone(), &served.resource),
        }
    }

    /// Events in the namespace of the command, or in all.
    pub(crate) fn events(&self) -> Api<Event> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// The API of a kind in the given namespace.
    pub(crate) fn api_in(&self, kind: Kind, namespace: &str) -> Result<Api<DynamicObject>, Failure> {
        let served = self.require(kind)?;
        Ok(Api::namespaced_with(self.client.clone(), namespace, &served.resource))
    }

    /// Lists the objects of these kinds. A kind that is not served has none. A kind that must not
    /// be listed is left out with a warning, unless it is in `needed`.
    pub(crate) async fn list(&self, kinds: &[Kind], needed: &[Kind]) -> Result<Fleet, Failure> {
        let mut fleet = Fleet::new(self.namespace.as_deref());
        needed.iter().try_for_each(|kind| self.require(*kind).map(drop))?;
        let served = kinds.iter().filter_map(|kind| self.served(*kind));
        let lists = served.map(async |served| (served.kind, self.list_kind(served).await));
        let mut lists: stream::FuturesUnordered<_> = lists.collect();
        while let Some((kind, objects)) = lists.next().await {
            match objects {
                Ok(objects) => {
                    for object in objects {
                        fleet.insert(Object::new(kind, object));
                    }
                    fleet.set_listed(kind);
                }
                Err(error) if is_forbidden(&error) && !needed.contains(&kind) => {
                    anstream::eprintln!("left out: {}", explain_error(&error));
                }
                Err(error) => return Err(Failure::request(format!("list {}", kind.name()))(error)),
            }
        }
        Ok(fleet)
    }

    /// A fleet of this one object.
    pub(crate) async fn get(&self, id: &Id) -> Result<Fleet, Failure> {
        let api = self.api_in(id.kind, &id.namespace)?;
        let found = api.get(&id.name).await;
        let found =
            found.map_err(Failure::request(format!("read {} in namespace {}", id.short(), id.namespace)))?;
        let mut fleet = Fleet::new(self.namespace.as_deref());
        fleet.insert(Object::new(id.kind, found));
        Ok(fleet)
    }

    async fn list_kind(&self, served: &Served) -> Result<Vec<DynamicObject>, kube::Error> {
        let api = self.api(served);
        let mut objects = vec![];
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&params).await?;
            let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
            objects.extend(page.items);
            let Some(token) = next else { return Ok(objects) };
            params = params.continue_token(&token);
        }
    }

    /// Adds the objects that exist and may be read to the fleet.
    pub(crate) async fn add_readable(&self, fleet: &mut Fleet, ids: &[Id]) -> Result<(), Failure> {
        for id in ids.iter().filter(|id| self.served(id.kind).is_some()) {
            match self.api_in(id.kind, &id.namespace)?.get_opt(&id.name).await {
                Ok(found) => found.into_iter().for_each(|found| fleet.insert(Object::new(id.kind, found))),
                Err(error) if is_forbidden(&error) => {}
                Err(error) => return Err(Failure::request(format!("read {}", id.short()))(error)),
            }
        }
        Ok(())
    }

    /// Follows the objects of these kinds. The kinds in `needed` have to be served and allowed,
    /// as for [`Self::list`].
    pub(crate) fn watch(&self, kinds: &[Kind], needed: &[Kind]) -> Result<Live, Failure> {
        self.watch_with(kinds, needed, &watcher::Config::default())
    }

    pub(crate) fn watch_one(&self, id: &Id) -> Result<Live, Failure> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", id.name));
        self.watch_with(&[id.kind], &[id.kind], &config)
    }

    fn watch_with(&self, kinds: &[Kind], needed: &[Kind], config: &watcher::Config) -> Result<Live, Failure> {
        needed.iter().try_for_each(|kind| self.require(*kind).map(drop))?;
        let served: Vec<_> = kinds.iter().filter_map(|kind| self.served(*kind)).collect();
        let streams = served.iter().map(|served| {
            let kind = served.kind;
            let events = watcher(self.api(served), config.clone()).default_backoff();
            events.map(move |event| (kind, event)).boxed()
        });
        let kinds = served.iter().map(|served| served.kind).collect();
        let events = stream::select_all(streams).ready_chunks(1024).boxed();
        Ok(Live::new(events, kinds, self.namespace.as_deref()).needing(needed))
    }

    /// The plan Secret of a host; `None` if there is no Secret of this name and type.
    pub(crate) async fn plan_secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Secret>, kube::Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = api.get_opt(name).await?;
        Ok(secret.filter(|secret| secret.type_.as_deref() == Some(plan_secret::TYPE)))
    }
}

fn missing_kind(kind: Kind) -> Failure {
    let name = kind.name();
    Failure::Request {
        what: format!("find the kind {name}"),
        cause: "the API server does not serve it: choose the management cluster by --context, or install the CRDs"
            .to_owned(),
    }
}

async fn discover(client: &Client) -> Result<Vec<Served>, Failure> {
    let groups: Vec<_> = Kind::all().flat_map(Kind::resources).map(|resource| resource.group).collect();
    let groups: Vec<_> = groups.iter().map(String::as_str).collect();
    let discovery = Discovery::new(client.clone()).filter(&groups).run_aggregated().await;
    let discovery = discovery.map_err(Failure::request("ask the API server which kinds it serves"))?;
    let served = Kind::all().filter_map(|kind| {
        let resource = kind.resources().find_map(|gvk| discovery.resolve_gvk(&gvk))?.0;
        Some(Served { kind, resource })
    });
    Ok(served.collect())
}
