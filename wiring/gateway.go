package wiring

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/gateway/firsts"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/gateway/seal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
)

// GatewayLanes are the lanes of a gateway's service types.
func GatewayLanes(c *configs.Config) []gateway.Lane {
	var lanes []gateway.Lane
	for _, l := range c.ServiceLanes() {
		lane := c.Lane(l.Lane) // configs has checked that it is there
		lanes = append(lanes, gateway.Lane{Name: lane.Name, Topic: lane.Topic, ServiceType: l.ServiceType, Mode: gateway.Mode(lane.Mode)})
	}
	return lanes
}

// AppNames are the names of all apps.
func AppNames(c *configs.Config) (names []string) {
	for _, a := range c.Apps {
		names = append(names, a.Name)
	}
	return names
}

// Gateway is what a gateway is made of, as far as the configuration says it.
func Gateway(c *configs.Config) gateway.Options {
	g := &c.Gateway
	o := gateway.Options{Lanes: GatewayLanes(c),
		Limits: gateway.Limits{Message: int(g.MessageBytes), Lines: g.BatchLines, Batch: int(g.BatchBytes), Query: g.Receipts, Requests: g.Requests, Batches: g.Batches},
		Times:  gateway.Times{Confirm: g.Confirm, Status: g.Status, Kept: c.Cassandra.TTL, Delay: slices.Max(append(slices.Clone(c.Retries.Tiers), c.Retries.Deferral))}}
	o.Apps = AppNames(c)
	return o
}

// ClicksOptions are those of what apps report, in these tables.
func ClicksOptions(c *configs.Config, tables clicks.Tables) clicks.Options {
	return clicks.Options{Tables: tables, Kept: c.Gateway.Clicks.Kept, Concurrency: c.Cassandra.Concurrency}
}

// Signer signs what a gateway gives to callers and apps, by the secret that all share.
func Signer(c *configs.Config) (*gateway.Signer, error) {
	secret, err := c.Gateway.ReceiptsSecret()
	if err != nil {
		return nil, err
	}
	s, err := gateway.NewSigner(secret.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s %w", c.Gateway.ReceiptsFile, err)
	}
	return s, nil
}

// Confidential is what messages to confidential topics need; nil = there are none.
func Confidential(c *configs.Config) (*gateway.Confidential, error) {
	o := &c.Gateway.Confidential
	if o.KeysFile == "" {
		return nil, nil
	}
	secret, err := o.Secret()
	if err != nil {
		return nil, err
	}
	keys, err := seal.Parse(secret.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s %w", o.KeysFile, err)
	}
	return &gateway.Confidential{Keys: keys, Title: o.Title}, nil
}

// Quotas are what senders may send through all gateways of the consumer groups' fleet. The gateway
// gets a name that none had before.
func Quotas(c *configs.Config, log *slog.Logger) quota.Options {
	l := &c.Gateway.Limits
	o := quota.Options{Fleet: c.Kafka.Group, Member: rand.Text(), Default: messageLimits(l.Default), Senders: make(map[string]quota.Limits, len(l.Senders)), Gateways: l.Gateways, Log: log}
	for _, s := range l.Senders {
		o.Senders[s.Sender] = messageLimits(s.Limits)
	}
	return o
}

// Firsts is where the first records of messages are kept that the consumer groups' fleet's
// gateways have accepted.
func Firsts(c *configs.Config, log *slog.Logger) firsts.Options {
	return firsts.Options{Fleet: c.Kafka.Group, Kept: c.Gateway.Repeats, Log: log}
}

func messageLimits(l configs.SenderLimits) quota.Limits {
	return quota.Limits{Second: l.Second, Minute: l.Minute, Hour: l.Hour, Day: l.Day}
}

// Recipients is how many receivers senders may reach through all processes of fan-outs of
// the consumer groups' fleet.
func Recipients(c *configs.Config, client shards.Client) *quota.Recipients {
	l := &c.Gateway.Limits
	own := make(map[string]int, len(l.Senders))
	for _, s := range l.Senders {
		own[s.Sender] = s.Limits.Recipients
	}
	return quota.NewRecipients(client, c.Kafka.Group, l.Default.Recipients, own)
}

// GatewayServer bounds the connections of callers; TLS is to be added.
func GatewayServer(c *configs.Config) gateway.ServerOptions {
	g := &c.Gateway
	return gateway.ServerOptions{Connections: g.Connections, Header: int(g.HeaderBytes), HeaderTime: g.HeaderTimeout, BodyTime: g.BodyTimeout,
		WriteTime: g.AnswerTimeout, IdleTime: g.IdleTimeout}
}

// GatewaySender bounds what waits for Kafka.
func GatewaySender(c *configs.Config) kafka.SenderOptions {
	g := &c.Gateway
	return kafka.SenderOptions{Linger: g.Linger, Records: g.BufferedRecords, Bytes: int(g.BufferedBytes)}
}
