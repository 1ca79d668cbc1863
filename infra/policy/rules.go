package policy

import "github.com/elasticdl/elasticdl/infra"

// Rules has all rules; docs/infrastructure/policy.md has the same table.
var Rules = []Rule{
	{
		Name: "public-endpoint", Forbids: "a Kubernetes API that everybody may reach",
		Why:    "credentials leak; the network is the last line of defence",
		Remedy: `Name the networks: pulumi config set --path '<cloud>.authorizedNetworks[0].cidr' "$(curl -s https://checkip.amazonaws.com)/32"`,
		judge:  publicEndpoint,
	},
	{
		Name: "open-ingress", Forbids: "a firewall or security group that lets everybody in",
		Why:    "nothing in a stack serves the world; file systems and nodes least of all",
		Remedy: "Allow the security group or the CIDR that needs it",
		judge:  openIngress,
	},
	{
		Name: "open-bucket", Forbids: "a bucket that may become public",
		Why: "one wrong ACL publishes code, data and models",
		Remedy: "Block all four ways of public access (S3), or enforce publicAccessPrevention, without ACLs " +
			"of objects (Cloud Storage)",
		judge: openBucket,
	},
	{
		Name:    "missing-bucket-guard",
		Forbids: "an S3 bucket without a public access block or without encryption settings",
		Why:     "what is not there cannot be seen to be right",
		Remedy:  "Add aws:s3/bucketPublicAccessBlock and aws:s3/bucketServerSideEncryptionConfigurationV2 of the bucket",
		judge:   bareBucket, whole: true,
	},
	{
		Name: "wildcard-role", Forbids: "* in a Role or ClusterRole, and bindings to cluster-admin, admin or edit",
		Why:    "a training job that is taken over then has the cluster",
		Remedy: "List the verbs and resources that are used, as `elasticdl rbac` does",
		judge:  wildcardRole,
	},
	{
		Name:    "wildcard-policy",
		Forbids: "*, service:* or NotAction as an action, * as a resource, and any principal in an IAM policy",
		Why:     "it also allows what comes to the account later",
		Remedy:  "Name actions and ARNs; a principal of * needs a Condition",
		judge:   wildcardPolicy,
	},
	{
		Name: "broad-role", Forbids: "roles and managed policies that are good for everything, as " +
			"roles/editor or AdministratorAccess",
		Why:    "every pod of a node may come to have what the node has",
		Remedy: "Grant the narrow role, on the resource rather than on the project",
		judge:  broadRole,
	},
	{
		Name: "exclusive-binding", Forbids: "IAMPolicy and IAMBinding on projects, folders and organizations",
		Why:    "they take the role from all others who have it, and may lock the project out",
		Remedy: "Use IAMMember, which adds one and removes one",
		judge:  exclusiveBinding,
	},
	{
		Name: "privileged-pod", Forbids: "pods of the job that are privileged, or share the host's " +
			"network, processes, IPC or files",
		Why: "models are other people's code",
		Remedy: "Take it from job.clusterSpecJSON and job.volumes; files of the host go through a " +
			"PersistentVolume and a claim",
		judge: privilegedPod,
	},
	{
		Name: "unpinned-image", Forbids: "images without tag, with the tag latest, and of DaemonSets without digest",
		Why:    "a replaced worker would run another program than its peers",
		Remedy: "Give the tag, or better the digest (@sha256:…), which elasticdl:image does on its own",
		judge:  unpinnedImage,
	},
	{
		Name: "unencrypted-volume", Forbids: "file systems, disks and buckets that are not encrypted",
		Why: "it cannot be switched on later without replacing the data",
		Remedy: "Set encrypted: true on the file system, and on every disk of the launch template, " +
			"which every node group needs",
		judge: unencryptedVolume,
	},
	{
		Name: "unlabelled-cost", Forbids: "what costs and has no label or tag",
		Why:    "the bill then says Kubernetes, and not whose",
		Remedy: "Set elasticdl:labels, and pass them on (labels, resourceLabels, tags, tagSpecifications)",
		judge:  unlabelledCost,
	},
	{
		Name: "rigid-spot", Forbids: "spot nodes without a taint, or for a job whose workers are not elastic",
		Why: "spot nodes are taken back: masters and parameter servers may not be there, and a " +
			"ring that needs all its workers stops",
		Remedy: "Taint the pool NO_SCHEDULE, and keep job.minWorkers below job.numWorkers; or set spot: false",
		judge:  rigidSpot,
	},
	{
		Name: "unprotected-storage",
		Forbids: "file systems, buckets and dynamic claims that `pulumi destroy` takes along, and static " +
			"volumes that are not retained",
		Why: "one command deletes the data",
		Remedy: "Set elasticdl:protectStorage: true. To let the data go: pulumi config set " +
			"protectStorage false, pulumi up, pulumi destroy",
		judge: unprotectedStorage,
	},
	{
		Name: "orphan", Forbids: "objects in a cluster of the stack that own objects of the cloud: Services of " +
			"type LoadBalancer, Ingresses, Gateways, dynamic claims",
		Why:    "what is in the cluster is lost with it, undeleted: load balancers and disks would stay and cost",
		Remedy: "Use ClusterIP and kubectl port-forward, and a static volume (volumeName)",
		judge:  orphan,
	},
	{
		Name: "default-provider", Forbids: "Kubernetes objects without a provider of their own",
		Why:    "they go to whatever cluster kubectl happens to point at",
		Remedy: "Pass pulumi.Provider of the stack's cluster",
		judge:  defaultProvider,
	},
	{
		Name: infra.RuleReplacedCluster, Forbids: "a change that puts another cluster in the place of the stack's",
		Why:       "all that runs in it ends, and Pulumi stops half way",
		Remedy:    "Change the setting back, or pulumi destroy, then pulumi up",
		elsewhere: true,
	},
	{
		Name: "clear-credential", Forbids: "tokens, and keys and passwords in clear, in a kubeconfig",
		Why:    "the stack's state has them, for every reader",
		Remedy: "Let the kubeconfig name a command (exec) that gets credentials; a key that must be there is a secret",
		judge:  clearCredential,
	},
	{
		Name: "node-credentials", Forbids: "nodes whose own identity every pod can use",
		Why: "the job would have the rights of the node: the registry, the logs, all other jobs",
		Remedy: "GKE: workloadPool, mode GKE_METADATA and a service account per pool; EKS: " +
			"httpTokens required, httpPutResponseHopLimit 1",
		judge: nodeCredentials,
	},
}
