//! Who asks: the [`Service`] that is examined, and a [`Caller`] of it with the verbs of the contract.

use std::time::Duration;

use reqwest::Url;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::card::{Checked, Miss};

/// Far beyond what a caller should have to wait for any answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long an idle connection is used again: less than any service keeps one, which could close it just as a request is sent.
const IDLE: Duration = Duration::from_secs(1);

/// The service that is examined, and as whom.
#[derive(Clone)]
pub struct Service {
    pub api: Caller,
    pub second_instance: Option<Caller>,
    pub rotated: Option<Caller>,
    pub other_tenant: Option<Caller>,
    pub read_only: Option<Caller>,
    pub revoked: Option<Caller>,
}

impl Service {
    /// The instances in turn; the only one, if there is no second.
    pub fn instance(&self, turn: usize) -> &Caller {
        match &self.second_instance {
            Some(second) if turn % 2 == 1 => second,
            _ => &self.api,
        }
    }

    pub fn second_instance(&self) -> Checked<&Caller> {
        given(self.second_instance.as_ref(), "URL_B")
    }

    pub fn rotated(&self) -> Checked<&Caller> {
        given(self.rotated.as_ref(), "API_KEY_ROTATED")
    }

    pub fn other_tenant(&self) -> Checked<&Caller> {
        given(self.other_tenant.as_ref(), "API_KEY_OTHER_TENANT")
    }

    pub fn read_only(&self) -> Checked<&Caller> {
        given(self.read_only.as_ref(), "API_KEY_READ_ONLY")
    }

    pub fn revoked(&self) -> Checked<&Caller> {
        given(self.revoked.as_ref(), "API_KEY_REVOKED")
    }
}

fn given<'a>(caller: Option<&'a Caller>, name: &str) -> Checked<&'a Caller> {
    caller.ok_or_else(|| Miss::Skipped(format!("{name} is not given")))
}

/// Somebody with an API key, at an instance.
#[derive(Clone)]
pub struct Caller {
    pub http: reqwest::Client,
    pub api_key: String,
    /// Without a slash at its end.
    pub base: String,
    /// Host and port.
    pub host: String,
    /// The path of the base address.
    pub prefix: String,
}

/// A payment of the case's own.
pub struct Paid {
    pub id: String,
    pub payer: String,
    pub payee: String,
}

impl Caller {
    pub fn new(base: &str, api_key: &str) -> Result<Self, String> {
        let base = base.trim_end_matches('/');
        let url = Url::parse(base).map_err(|error| format!("{base:?} is no address: {error}"))?;
        let (Some(host), Some(port), "http") = (url.host_str(), url.port_or_known_default(), url.scheme()) else {
            return Err(format!(
                "{base:?}: an http:// address is needed, since some cases send bytes that no HTTPS client would"
            ));
        };
        // A proxy from the environment would answer in the service's place.
        let http = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
        let http = http.pool_idle_timeout(IDLE).build();
        Ok(Self {
            http: http.map_err(|error| error.to_string())?,
            api_key: api_key.to_owned(),
            base: base.to_owned(),
            host: format!("{host}:{port}"),
            prefix: url.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The same caller at another instance.
    pub fn at(&self, base: &str) -> Result<Self, String> {
        Self::new(base, &self.api_key)
    }

    /// The same address, with another API key.
    pub fn with_api_key(&self, api_key: &str) -> Self {
        let api_key = api_key.to_owned();
        Self {
            api_key,
            ..self.clone()
        }
    }

    /// Before anything is checked: somebody is there, and knows the API key.
    pub async fn is_there(&self) -> Result<(), String> {
        match self.get("/accounts?limit=1").await {
            Ok(reply) if reply.status != 401 => Ok(()),
            Ok(_) => Err(format!("{} does not accept the API key", self.base)),
            Err(_) => Err(format!("nobody answers at {}", self.base)),
        }
    }

    pub fn get(&self, path: impl Into<String>) -> Ask {
        Ask::get(self, path.into())
    }

    pub fn post(&self, path: impl Into<String>, body: &Value) -> Ask {
        Ask::post(self, path.into(), body)
    }

    /// `POST /accounts`
    pub fn open(&self, currency: &str) -> Ask {
        self.post("/accounts", &json!({"currency": currency, "name": "conformance"}))
    }

    /// An empty account; its id.
    pub async fn account(&self, currency: &str) -> Checked<String> {
        self.open(currency).await?.created()
    }

    /// An account with so many dollars; its id.
    pub async fn account_with(&self, amount: &str) -> Checked<String> {
        let account = self.account("USD").await?;
        self.deposit(&account, amount, "USD").await?.created()?;
        Ok(account)
    }

    /// A payment of so many dollars between two accounts that have nothing else.
    pub async fn paid(&self, amount: &str) -> Checked<Paid> {
        let (payer, payee) = (self.account_with(amount).await?, self.account("USD").await?);
        let id = self.pay(&payer, &payee, amount).await?.created()?;
        Ok(Paid { id, payer, payee })
    }

    pub fn deposit(&self, account: &str, amount: &str, currency: &str) -> Ask {
        let body = json!({"amount": amount, "currency": currency});
        self.post(format!("/accounts/{account}/deposits"), &body)
    }

    pub fn withdraw(&self, account: &str, amount: &str, currency: &str) -> Ask {
        let body = json!({"amount": amount, "currency": currency});
        self.post(format!("/accounts/{account}/withdrawals"), &body)
    }

    /// `freeze`, `unfreeze` or `close`.
    pub fn set(&self, account: &str, what: &str) -> Ask {
        self.post(format!("/accounts/{account}/{what}"), &json!({}))
    }

    /// In dollars.
    pub fn pay(&self, payer: &str, payee: &str, amount: &str) -> Ask {
        let body = json!({"payer_account_id": payer, "payee_account_id": payee, "amount": amount, "currency": "USD"});
        self.post("/payments", &body)
    }

    /// All that remains, unless `with` says how much.
    pub fn refund(&self, payment: &str) -> Ask {
        self.post(format!("/payments/{payment}/refunds"), &json!({}))
    }

    /// Checks what is in an account.
    pub async fn balance_is(&self, account: &str, balance: &str) -> Checked {
        self.get(format!("/accounts/{account}")).await?.has("balance", balance)
    }
}
