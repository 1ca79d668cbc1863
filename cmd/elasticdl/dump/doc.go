// Package dump collects the evidence about a job in one archive, without secrets, for people who
// look for a fault.
//
// All parts are read first, each within its time, and one that cannot be read is named in the
// manifest with the reason. Then the secrets that their structure tells are removed from all of
// them: see package secret.
package dump
