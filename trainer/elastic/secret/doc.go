// Package secret finds secrets in settings, and removes them from what is shown to others.
//
// [Looks] and [Find] are for refusals: they name what is very likely a secret, and nothing else. A
// [Redactor] is for evidence that leaves the machine: it removes what may be a secret, and so
// removes some texts that are none.
//
// It removes a secret in three ways. By structure: values of environment variables, and values
// whose name is that of a secret, in JSON and in command lines. By form: private keys, tokens,
// passwords in URLs, and what a log prints after the name of a secret. By value: what was found by
// structure, and is long enough to be recognized, is removed wherever else it occurs.
package secret
