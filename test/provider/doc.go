// Package provider simulates the clouds' providers for the real engine of Pulumi, in the process of
// a test: Google's, Amazon's, Kubernetes' and that of commands.
//
//	engine ──PULUMI_DEBUG_PROVIDERS──┬──> [Cloud]: gcp, aws, command: one [Provider] with a
//	                                 │    table of [Type]s
//	                                 └──> kubernetes: [Kubernetes], whose clusters the others
//	                                      create and delete
//
// They are as strict as clouds, so that tests do not pass because nothing was checked:
//
//   - Values that a cloud assigns are unknown in a preview.
//   - A property that the SDK does not have, one of another kind, and a missing required one are
//     refused: see [Schema].
//   - Differences of Google's and Amazon's resources are those that Terraform plans, whose
//     providers Pulumi wraps: a value that the cloud filled in is a difference if the provider's
//     attribute is not Computed; a change of a ForceNew attribute replaces the resource. See
//     plan.go.
//   - A name can be used once.
//   - The state has what clouds fill in at once (Fill of a type); a refresh reads what they have
//     changed since (Drift).
//   - Groups of nodes on EKS have a size of their own: see [Cloud.Scale].
//   - A resource that is in use cannot be deleted.
//   - When its cluster is deleted, an object of Kubernetes is lost, and requests for it are not
//     answered.
//
// The directory schemas has the schemas of Terraform's providers, as facts: one line for each
// attribute, with its source and version at the top. With another version of Pulumi's SDK, which
// wraps another version of the provider, they have to be extracted again; the tests compare their
// names and forms with the SDK's sources. Behaviour that providers have in code is written by hand
// in suppress.go.
package provider
