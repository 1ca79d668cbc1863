package cli

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

func rbacCommand() *cobra.Command {
	var (
		location location
		account  string
		queues   bool
		nodes    bool
	)
	cmd := &cobra.Command{
		Use:   "rbac [JOB...]",
		Short: "Print the Kubernetes permissions that jobs need",
		Long: "Print the ServiceAccount, Role and RoleBinding for the masters of jobs in a namespace, as YAML.\n" +
			"Use them where users must not create ServiceAccounts, with --service_account. Otherwise each job creates its own.\n\n" +
			"With names of jobs, existing or future, access is limited to their Jobs, ConfigMaps and Secrets.\n" +
			"Access to pods and events covers the namespace: Kubernetes cannot limit create, list and watch by name.\n\n" +
			"With --queues it also prints the WorkloadPriorityClasses of jobs with --queue. They require Kueue, belong to no\n" +
			"namespace, and are applied once. Kueue preempts other workers before the core of a job.\n\n" +
			"With --nodes it also prints a ClusterRole and its binding, by which the masters of the namespace hear which nodes\n" +
			"will be taken away. Their workers there leave at once, before the node asks them.",
		Example: "  elasticdl rbac test-mnist --namespace=training | kubectl apply -f -\n  " +
			"elasticdl train --namespace=training --job_name=test-mnist --service_account=elasticdl ...\n  " +
			"elasticdl rbac --queues --nodes --namespace=training | kubectl apply -f -",
		Args: cobra.ArbitraryArgs,
		RunE: command.Does(func(cmd *cobra.Command, jobs []string) error {
			for _, name := range jobs {
				if err := job.CheckName(name); err != nil {
					return command.Usage(err)
				}
			}
			namespace := location.at.Namespace
			client, err := location.connect(cmd)
			switch {
			case err == nil:
				namespace = client.Namespace()
			case !errors.Is(err, kube.ErrNoCluster):
				return err
			case namespace == "":
				namespace = "default"
			}
			text, err := kube.Permissions(namespace, account, jobs...)
			if err != nil {
				return command.Usage(err)
			}
			more := []func() ([]byte, error){}
			if queues {
				more = append(more, kube.WorkloadPriorities)
			}
			if nodes {
				more = append(more, func() ([]byte, error) { return kube.NodePermissions(namespace) })
			}
			for _, objects := range more {
				all, err := objects()
				if err != nil {
					return err
				}
				text = slices.Concat(text, []byte("---\n"), all)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}),
	}
	cmd.Flags().StringVar(&account, "service_account", "elasticdl",
		"name of the ServiceAccount, and of the Role and RoleBinding")
	cmd.Flags().BoolVar(&queues, "queues", false,
		"print the WorkloadPriorityClasses of jobs in queues, too")
	cmd.Flags().BoolVar(&nodes, "nodes", false,
		"print the permission to watch nodes, too, for all ServiceAccounts of the namespace")
	location.clusterFlags(cmd)
	return cmd
}
