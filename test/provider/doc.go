// Package provider plays the clouds' providers for the real engine of Pulumi, in the process of a test: Google's,
// Amazon's, Kubernetes' and that of commands.
//
//	engine ──PULUMI_DEBUG_PROVIDERS──> [Cloud]: gcp, aws, command: one [Provider] with a table of [Type]s
//	                                            kubernetes: [Kubernetes], whose clusters the others make and delete
//
// They are severe where clouds are, so that what is green here is not because nobody looked:
//
//   - What a cloud decides is not known in a preview.
//   - A property that the SDK does not have, or of another kind, and one that is missing are refused: see [Schema].
//   - What cannot be changed is replaced; a name can be had once.
//   - A refresh reads what clouds say, which is not what they were told: see the types' Drift.
//   - What is deleted must not be in use.
//   - Without its cluster an object of Kubernetes is gone, and who asks for it learns that nobody answers.
package provider
