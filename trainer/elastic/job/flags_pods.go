package job

var podFlags = []Flag{
	{Name: "image_name", Topic: Pods, Effect: Cluster, Aliases: []string{"image_base"},
		Usage: "image of every pod", bind: func(c *Command) value {
			return text(&c.Job.Image)
		}},
	{Name: "worker_image", Topic: Pods, Effect: Cluster,
		Usage: "image of workers and parameter servers [--image_name]", bind: func(c *Command) value {
			return both(text(&c.Job.Worker.Image), text(&c.Job.PS.Image))
		}},
	{Name: "namespace", Short: "n", Topic: Pods, Effect: Cluster, Usage: "Kubernetes namespace of the job",
		bind: func(c *Command) value {
			return text(&c.Job.Namespace)
		}},
	{Name: "master_resource_request", Topic: Pods, Effect: Cluster,
		Usage: "resource request of the master, such as cpu=250m,memory=32Mi,gpu=1", bind: func(c *Command) value {
			return resources(&c.Job.Master.Request)
		}},
	{Name: "master_resource_limit", Topic: Pods, Effect: Cluster,
		Usage: "resource limit of the master [its request, with cpu=1 or more]", bind: func(c *Command) value {
			return resources(&c.Job.Master.Limit)
		}},
	{Name: "ps_resource_request", Topic: Pods, Effect: Cluster, Usage: "resource request of a parameter server",
		bind: func(c *Command) value {
			return resources(&c.Job.PS.Request)
		}},
	{Name: "ps_resource_limit", Topic: Pods, Effect: Cluster, Usage: "resource limit of a parameter server",
		bind: func(c *Command) value {
			return resources(&c.Job.PS.Limit)
		}},
	{Name: "worker_resource_request", Topic: Pods, Effect: Cluster,
		Usage: "resource request of a worker", bind: func(c *Command) value {
			return resources(&c.Job.Worker.Request)
		}},
	{Name: "worker_resource_limit", Topic: Pods, Effect: Cluster,
		Usage: "resource limit of a worker", bind: func(c *Command) value {
			return resources(&c.Job.Worker.Limit)
		}},
	{Name: "master_pod_priority", Topic: Pods, Effect: Cluster, Usage: "PriorityClass of the master",
		bind: func(c *Command) value {
			return priority(&c.Job.Master.Priority)
		}},
	{Name: "ps_pod_priority", Topic: Pods, Effect: Cluster,
		Usage: "PriorityClass of parameter servers [the master's]", bind: func(c *Command) value {
			return priority(&c.Job.PS.Priority)
		}},
	{Name: "worker_pod_priority", Topic: Pods, Effect: Cluster,
		Usage: "PriorityClass of workers, or the fraction with class high (0.5); the others get low",
		bind: func(c *Command) value {
			return priority(&c.Job.Worker.Priority)
		}},
	{Name: "volume", Topic: Pods, Effect: Cluster,
		Usage: "volumes to mount, such as claim_name=c,mount_path=/c,sub_path=s;host_path=/d,mount_path=/d",
		bind: func(c *Command) value {
			return volumes(&c.Job.Volumes)
		}},
	{Name: "image_pull_policy", Topic: Pods, Effect: Cluster, Usage: "image pull policy: Always, IfNotPresent or Never",
		bind: func(c *Command) value {
			return text(&c.Job.ImagePullPolicy)
		}},
	{Name: "restart_policy", Topic: Pods, Effect: Cluster,
		Usage: "restart policy of workers and servers: Never, OnFailure or Always", bind: func(c *Command) value {
			return text(&c.Job.RestartPolicy)
		}},
	{Name: "envs", Topic: Pods, Effect: Everywhere, Usage: "environment variables of every pod, such as A=1,B=2",
		bind: func(c *Command) value {
			return envs(&c.Job.Envs)
		}},
	{Name: "env_secret", Topic: Pods, Effect: Everywhere,
		Usage: "environment variables from Secrets; with --runtime=local from this command's environment",
		bind: func(c *Command) value {
			return envSecrets(&c.Job.EnvSecrets)
		}},
	{Name: "allow_plain_secrets", Topic: Pods, Effect: Cluster,
		Usage: "accept values of other flags that look like secrets", bind: func(c *Command) value {
			return boolean(&c.Job.AllowPlainSecrets)
		}},
	{Name: "image_pull_secret", Topic: Pods, Effect: Cluster,
		Usage: "Secrets for the image registry, as created by kubectl create secret docker-registry",
		bind: func(c *Command) value {
			return names(&c.Job.ImagePullSecrets)
		}},
	{Name: "populate_env_names", Topic: Pods, Effect: Cluster,
		Usage: "regular expression of the master's environment variables to copy to the other pods",
		bind: func(c *Command) value {
			return text(&c.Job.PopulateEnvNames)
		}},
	{Name: "cluster_spec", Topic: Pods, Effect: Cluster,
		Usage: "YAML or JSON file with fields to merge into the manifests", bind: func(c *Command) value {
			return filePath(&c.ClusterSpec)
		}},
	{Name: "cluster_spec_json", Topic: Pods, Effect: Cluster,
		Usage: "fields to merge into the manifests: {\"worker_pod_spec\": {...}, \"service_spec\": {...}}",
		bind: func(c *Command) value {
			return object(&c.Job.ClusterSpecJSON)
		}},
	{Name: "max_memory", Topic: Pods, Effect: Cluster,
		Usage: "double the memory of a pod after an OOM kill, up to this limit [no doubling]",
		bind: func(c *Command) value {
			return memory(&c.Job.MaxMemory)
		}},
	{Name: "node_selector", Topic: Pods, Effect: Cluster,
		Usage: "node labels that pods require, such as disktype=ssd,zone=a", bind: func(c *Command) value {
			return selector(&c.Job.NodeSelector)
		}},
	{Name: "tolerations", Topic: Pods, Effect: Cluster,
		Usage: "tolerations, such as key=K,operator=Exists;key=L,value=V,effect=NoExecute,seconds=60",
		bind: func(c *Command) value {
			return tolerations(&c.Job.Tolerations)
		}},
	{Name: "service_account", Topic: Pods, Effect: Cluster,
		Usage: "ServiceAccount of the pods, as made by elasticdl rbac [one per job]", bind: func(c *Command) value {
			return text(&c.Job.ServiceAccount)
		}},
	{Name: "run_as_user", Topic: Pods, Effect: Cluster,
		Usage: "user and group ID of pods, for the Pod Security Standard restricted [the image's]",
		bind: func(c *Command) value {
			return number(&c.Job.RunAsUser)
		}},
	{Name: "suspend", Topic: Pods, Effect: Cluster, Usage: "create the job suspended; elasticdl resume starts it",
		bind: func(c *Command) value {
			return boolean(&c.Job.Suspend)
		}},
	{Name: "deadline", Topic: Pods, Effect: Cluster,
		Usage: "time limit of the job, after which it fails [none]", bind: func(c *Command) value {
			return duration(&c.Job.Deadline)
		}},
	{Name: "pending_timeout", Topic: Pods, Effect: Cluster,
		Usage: "time for which pods may be unschedulable before the job fails; 0 disables it [1h]",
		bind: func(c *Command) value {
			return optionalDuration(&c.Job.PendingTimeout)
		}},
	{Name: "notice_taints", Topic: Pods, Effect: Cluster,
		Usage: "further keys of taints that announce that a node will be taken away [none]",
		bind: func(c *Command) value {
			return list(&c.Job.NoticeTaints)
		}},
	{Name: "notice_metadata", Topic: Pods, Effect: Cluster,
		Usage: "metadata service that pods ask for notices of their node: aws, gce [none]",
		bind: func(c *Command) value {
			return text(&c.Job.NoticeMetadata)
		}},
	{Name: "queue", Topic: Pods, Effect: Cluster,
		Usage: "LocalQueue of Kueue that admits the job's pods one by one [none]", bind: func(c *Command) value {
			return text(&c.Job.Queue)
		}},
	{Name: "queue_timeout", Topic: Pods, Effect: Cluster,
		Usage: "time that the master, servers and first --min_workers workers may wait for quota [1m]",
		bind: func(c *Command) value {
			return duration(&c.Job.QueueTimeout)
		}},
	{Name: "queue_priorities", Topic: Pods, Effect: Cluster,
		Usage: "priority classes of core and other workers: workload, pod, none [as the cluster has]",
		bind: func(c *Command) value {
			return text(&c.Job.QueuePriorities)
		}},
	{Name: "ttl", Topic: Pods, Effect: Cluster,
		Usage: "time from the job's end to the deletion of its objects [never deleted]", bind: func(c *Command) value {
			return optionalDuration(&c.Job.TTL)
		}},
	{Name: "context", Topic: Pods, Effect: Cluster, Usage: "context of the kubeconfig file",
		bind: func(c *Command) value {
			return text(&c.Context)
		}},
	{Name: "kubeconfig", Topic: Pods, Effect: Cluster,
		Usage: "path of the kubeconfig file", bind: func(c *Command) value {
			return filePath(&c.Kubeconfig)
		}},
	{Name: "retry_timeout", Topic: Pods, Effect: Cluster,
		Usage: "time for which unanswered requests to the cluster are retried; 0 disables retries",
		bind: func(c *Command) value {
			return duration(&c.RetryTimeout)
		}},
	{Name: "job_command", Topic: Pods, Effect: Everywhere,
		Usage: "program that workers run instead of a model, as with elasticdl run", bind: func(c *Command) value {
			return text(&c.jobCommand)
		}},
	{Name: "need_tf_config", Topic: Pods, Effect: Later, Usage: "set TF_CONFIG", bind: toBool},
}
