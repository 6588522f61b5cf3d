package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Access is how the client logs in; certificates and keys are in PEM. Without any it dials in plain text.
type Access struct {
	TLS         bool   `json:"tls"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// dialled returns the options of a client that dials the brokers and logs in, and the others behind them.
func dialled(request Request, others ...kgo.Opt) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(request.Bootstrap, ",")...)}
	access := request.Access
	if access.TLS {
		options = append(options, kgo.DialTLSConfig(access.tls()))
	}
	if mechanism := access.mechanism(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return append(options, others...)
}

func (access Access) tls() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(access.CA))
	config := &tls.Config{RootCAs: pool}
	if access.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(access.Certificate), []byte(access.Key))
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (access Access) mechanism() sasl.Mechanism {
	switch access.Mechanism {
	case "PLAIN":
		return plain.Auth{User: access.User, Pass: access.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: access.User, Pass: access.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: access.User, Pass: access.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: strings.TrimSpace(access.Token)}, nil
		})
	}
	return nil
}
