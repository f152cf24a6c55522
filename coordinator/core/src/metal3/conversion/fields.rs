//! Fields of a JSON object, with their place for errors. A null is a field that is not set, as in the
//! API server.

use serde_json::{Map, Value};

use super::ConversionError;

pub(super) struct Fields<'a> {
    map: &'a mut Map<String, Value>,
    place: String,
}

impl<'a> Fields<'a> {
    /// The fields of a whole object.
    pub(super) fn root(map: &'a mut Map<String, Value>) -> Self {
        Self { map, place: String::new() }
    }

    fn place_of(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }

    pub(super) fn error(&self, name: &str, expected: &'static str) -> ConversionError {
        ConversionError::Field { place: self.place_of(name), expected }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.map.insert(name.to_owned(), value.into());
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.map.remove(name);
    }

    /// Removes the fields that are not named.
    pub(super) fn retain(&mut self, names: &[&str]) {
        self.map.retain(|name, _| names.contains(&&**name));
    }

    /// Removes a field and gives its value, if it is set.
    pub(super) fn take(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Gives a field another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.map.remove(from) {
            self.map.insert(to.to_owned(), value);
        }
    }

    /// Removes a text without a character, which stands for a text that is not set.
    pub(super) fn remove_empty_text(&mut self, name: &str) {
        if self.map.get(name).and_then(Value::as_str) == Some("") {
            self.map.remove(name);
        }
    }

    pub(super) fn bool(&self, name: &str) -> Result<Option<bool>, ConversionError> {
        let value = self.get(name);
        value.map(|value| value.as_bool().ok_or_else(|| self.error(name, "true or false"))).transpose()
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ConversionError> {
        let value = self.get(name);
        value.map(|value| value.as_str().ok_or_else(|| self.error(name, "a text"))).transpose()
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, ConversionError> {
        let value = self.get(name);
        value.map(|value| value.as_i64().ok_or_else(|| self.error(name, "a number of 64 bits"))).transpose()
    }

    pub(super) fn take_text(&mut self, name: &str) -> Result<Option<String>, ConversionError> {
        let text = self.text(name)?.map(str::to_owned);
        self.remove(name);
        Ok(text)
    }

    pub(super) fn take_object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, ConversionError> {
        match self.take(name) {
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => Err(self.error(name, "an object")),
            None => Ok(None),
        }
    }

    pub(super) fn take_list(&mut self, name: &str) -> Result<Option<Vec<Value>>, ConversionError> {
        match self.take(name) {
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.error(name, "a list")),
            None => Ok(None),
        }
    }

    /// The fields of an object in a field.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Fields<'_>>, ConversionError> {
        let place = self.place_of(name);
        match self.map.get_mut(name) {
            Some(Value::Object(map)) => Ok(Some(Fields { map, place })),
            None | Some(Value::Null) => Ok(None),
            Some(_) => Err(ConversionError::Field { place, expected: "an object" }),
        }
    }

    /// The fields of an object in a field, which is created if it is not set.
    pub(super) fn object_or_new(&mut self, name: &str) -> Result<Fields<'_>, ConversionError> {
        let place = self.place_of(name);
        let value = self.map.entry(name).or_insert(Value::Null);
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(map) => Ok(Fields { map, place }),
            _ => Err(ConversionError::Field { place, expected: "an object" }),
        }
    }

    /// The fields of each object in a list.
    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Fields<'_>>, ConversionError> {
        let place = self.place_of(name);
        let list = match self.map.get_mut(name) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => return Ok(vec![]),
            Some(_) => return Err(ConversionError::Field { place, expected: "a list" }),
        };
        let mut objects = vec![];
        for (index, value) in list.iter_mut().enumerate() {
            let place = format!("{place}[{index}]");
            let Value::Object(map) = value else {
                return Err(ConversionError::Field { place, expected: "an object" });
            };
            objects.push(Fields { map, place });
        }
        Ok(objects)
    }

    /// Makes a list of a map: each item has its key in a field.
    pub(super) fn list_entries(
        &mut self,
        name: &str,
        item: impl Fn(String, Value) -> Option<Map<String, Value>>,
        expected: &'static str,
    ) -> Result<(), ConversionError> {
        let Some(entries) = self.take_object(name)? else { return Ok(()) };
        let items = entries.into_iter().map(|(key, value)| item(key, value).map(Value::Object));
        let items = items.collect::<Option<Vec<_>>>().ok_or_else(|| self.error(name, expected))?;
        self.set(name, items);
        Ok(())
    }

    /// Makes a map of a list whose items have their key in a field. Of items with one key the last counts.
    pub(super) fn map_items(
        &mut self,
        name: &str,
        entry: impl Fn(Map<String, Value>) -> Option<(String, Value)>,
        expected: &'static str,
    ) -> Result<(), ConversionError> {
        let Some(items) = self.take_list(name)? else { return Ok(()) };
        let entry = |item| match item {
            Value::Object(item) => entry(item),
            _ => None,
        };
        let entries = items.into_iter().map(entry).collect::<Option<Map<_, _>>>();
        let entries = entries.ok_or_else(|| self.error(name, expected))?;
        self.set(name, entries);
        Ok(())
    }
}

/// Takes the text of a field.
pub(super) fn take_key(item: &mut Map<String, Value>, name: &str) -> Option<String> {
    match item.remove(name) {
        Some(Value::String(key)) => Some(key),
        _ => None,
    }
}

/// Leaves name and namespace of a reference to an object. A reference without a name names nothing.
pub(super) fn shorten_reference(fields: &mut Fields<'_>, name: &str) -> Result<(), ConversionError> {
    let Some(mut reference) = fields.object(name)? else { return Ok(()) };
    reference.retain(&["name", "namespace"]);
    reference.remove_empty_text("namespace");
    if reference.text("name")?.is_none_or(str::is_empty) {
        fields.remove(name);
    }
    Ok(())
}

/// Leaves what the objects that are cloned from a template get.
pub(super) fn shorten_metadata(template: &mut Fields<'_>) -> Result<(), ConversionError> {
    if let Some(mut metadata) = template.object("metadata")? {
        metadata.retain(&["labels", "annotations"]);
    }
    Ok(())
}
