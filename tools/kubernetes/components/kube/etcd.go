package main

import (
	"fmt"
	"net/url"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcdCommand returns the command of an etcd member that does not sync to disk: its data is lost
// with the cluster.
func newEtcdCommand() *cobra.Command {
	var dir, client, peer string
	cmd := &cobra.Command{
		Use:          "etcd",
		Short:        "a store of one member that does not sync to disk",
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			config, err := etcdConfig(dir, client, peer)
			if err != nil {
				return err
			}
			etcd, err := embed.StartEtcd(config)
			if err != nil {
				return fmt.Errorf("start etcd: %w", err)
			}
			defer etcd.Close()
			select {
			case <-ctx.Done():
				return nil
			case err := <-etcd.Err():
				return fmt.Errorf("serve etcd: %w", err)
			}
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "folder of the data")
	cmd.Flags().StringVar(&client, "listen-client-url", "", "URL for clients")
	cmd.Flags().StringVar(&peer, "listen-peer-url", "", "URL for other members; there are none")
	return cmd
}

func etcdConfig(dir, client, peer string) (*embed.Config, error) {
	c := embed.NewConfig()
	clientURL, err := url.Parse(client)
	if err != nil {
		return nil, fmt.Errorf("parse --listen-client-url: %w", err)
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return nil, fmt.Errorf("parse --listen-peer-url: %w", err)
	}
	c.Dir = dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	c.QuotaBackendBytes = 4 << 30
	c.TickMs, c.ElectionMs = 50, 500
	c.LogLevel = "warn"
	return c, nil
}
