// Package provider simulates the clouds' providers for the real engine of Pulumi, in the process of a test: Google's,
// Amazon's, Kubernetes' and that of commands.
//
//	engine ──PULUMI_DEBUG_PROVIDERS──> [Cloud]: gcp, aws, command: one [Provider] with a table of [Type]s
//	                                            kubernetes: [Kubernetes], whose clusters the others make and delete
//
// They are severe where clouds are, so that what is green here is not because nobody looked:
//
//   - What a cloud decides is not known in a preview.
//   - A property that the SDK does not have, or of another kind, and one that is missing are refused: see [Schema].
//   - Differences of Google's and Amazon's resources are those that Terraform plans, whose providers Pulumi wraps: what the
//     cloud filled in counts where the provider's attribute is not Computed; what is ForceNew is replaced. See plan.go.
//   - A name can be had once.
//   - The state has what clouds fill in at once (the types' Fill); a refresh reads what they changed since (Drift).
//   - Groups of nodes on EKS have a size of their own: see [Cloud.Scale].
//   - What is deleted must not be in use.
//   - Without its cluster an object of Kubernetes is gone, and who asks for it learns that nobody answers.
//
// The directory schemas has the schemas of Terraform's providers, as facts: one line for each attribute, with its source and
// version at the top. With another version of Pulumi's SDK, which wraps another version of the provider, they have to be
// extracted again; the tests compare their names and forms with the SDK's sources. What a provider does by code is written by
// hand in suppress.go.
package provider
