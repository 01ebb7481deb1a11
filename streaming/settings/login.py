"""How clients log in to the brokers: the part of `kafka` that all of them read, each in its own names."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from assignor_core.wording import counted
from streaming.settings.fields import File, HttpUrl, Section

AwsRegion = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$")]
"""Such as eu-west-1: it becomes part of a host's name."""


class LoginSettings(Section):
    """Encryption and login. A secret is given by itself or by a file, and shown by neither."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How the connection is secured, as in the settings of Kafka's clients."
    )
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"] | None
    ) = Field(None, description="The SASL mechanism, with a security_protocol that begins with SASL_.")
    sasl_username: str | None = Field(None, description="The user name to log in with, for PLAIN and SCRAM-*.")
    sasl_password: SecretStr | None = Field(
        None, description="The password, for PLAIN and SCRAM-*; better set by the environment or sasl_password_file."
    )
    sasl_password_file: File | None = Field(None, description="A file whose first line is the password.")
    sasl_oauthbearer_token_endpoint_url: HttpUrl | None = Field(
        None, description="The address that gives tokens for client credentials, with OAUTHBEARER."
    )
    sasl_oauthbearer_client_id: str | None = Field(None, description="The client's id at the token endpoint.")
    sasl_oauthbearer_client_secret: SecretStr | None = Field(
        None, description="The client's secret; better through the environment or sasl_oauthbearer_client_secret_file."
    )
    sasl_oauthbearer_client_secret_file: File | None = Field(
        None, description="A file whose first line is the client's secret."
    )
    sasl_oauthbearer_scope: str | None = Field(
        None, description="The scope that is requested at the token endpoint; null: none."
    )
    sasl_oauthbearer_ca_file: File | None = Field(
        None, description="A PEM file with the CA certificates of the token endpoint; null: those of the system."
    )
    sasl_oauthbearer_token_file: File | None = Field(
        None, description="A file with a token that another program renews, with OAUTHBEARER and without an endpoint."
    )
    sasl_aws_msk_iam_region: AwsRegion | None = Field(
        None, description="The cluster's region, with AWS_MSK_IAM; null: the region in the names of the brokers."
    )
    sasl_aws_msk_iam_profile: str | None = Field(
        None, description="The profile in AWS's own files, with AWS_MSK_IAM; null: AWS's usual order of places."
    )
    sasl_kerberos_principal: str | None = Field(None, description="The principal with its realm, for GSSAPI.")
    sasl_kerberos_keytab_file: File | None = Field(None, description="The keytab of the principal, for GSSAPI.")
    sasl_kerberos_service_name: str = Field(
        "kafka", min_length=1, description="The first part of the brokers' principals, with GSSAPI."
    )
    ssl_ca_file: File | None = Field(None, description="A PEM file with the CA certificates of the brokers.")
    ssl_certificate_file: File | None = Field(None, description="A PEM file with the client's certificate (mTLS).")
    ssl_key_file: File | None = Field(
        None, description="A PEM file with the key of ssl_certificate_file, in the form PKCS#8 and without a password."
    )

    def without_effect(self) -> str | None:
        """Which settings were given and count for nothing under this security_protocol, as a sentence."""
        starts = {"PLAINTEXT": ("sasl_", "ssl_"), "SSL": ("sasl_",), "SASL_PLAINTEXT": ("ssl_",)}
        unused = starts.get(self.security_protocol, ())
        given = (name for name in LoginSettings.model_fields if name in self.model_fields_set)
        names = [f"kafka.{name}" for name in given if name.startswith(unused) and getattr(self, name) is not None]
        if not unused or not names:
            return None
        have = counted(len(names), "setting has", "settings have")
        return f"kafka.security_protocol is {self.security_protocol}, so {have} no effect: {', '.join(names)}"

    @property
    def mechanism(self) -> str | None:
        """The mechanism by which clients log in; None where the protocol has no login, whatever else is set."""
        return self.sasl_mechanism if self.security_protocol.startswith("SASL") else None

    @property
    def is_encrypted(self) -> bool:
        """Whether certificates count."""
        return self.security_protocol.endswith("SSL")

    @property
    def asks_for_password(self) -> bool:
        """Whether clients log in with a user and a password."""
        return self.mechanism == "PLAIN" or (self.mechanism or "").startswith("SCRAM")

    @model_validator(mode="after")
    def _certificate_has_key(self) -> Self:
        if self.is_encrypted and (self.ssl_certificate_file is None) != (self.ssl_key_file is None):
            raise ValueError("ssl_certificate_file and ssl_key_file: one is set without the other")
        return self

    @model_validator(mode="after")
    def _sasl_is_whole(self) -> Self:
        if not self.security_protocol.startswith("SASL"):
            return self
        if self.sasl_mechanism == "OAUTHBEARER":
            self._check_oauthbearer()
        elif self.sasl_mechanism == "AWS_MSK_IAM":
            if self.security_protocol != "SASL_SSL":
                raise ValueError("sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL")
        elif self.sasl_mechanism == "GSSAPI":
            if not (self.sasl_kerberos_principal and self.sasl_kerberos_keytab_file):
                raise ValueError("sasl_mechanism GSSAPI needs sasl_kerberos_principal and sasl_kerberos_keytab_file")
        elif not (self.sasl_mechanism and self.sasl_username):
            raise ValueError(f"security_protocol {self.security_protocol} needs sasl_mechanism and sasl_username")
        return self

    def _check_oauthbearer(self) -> None:
        url, file = self.sasl_oauthbearer_token_endpoint_url, self.sasl_oauthbearer_token_file
        if (url is None) == (file is None):
            both = "not both" if url else "found neither"
            raise ValueError(
                "sasl_mechanism OAUTHBEARER needs sasl_oauthbearer_token_endpoint_url or sasl_oauthbearer_token_file, "
                + both
            )
        if url and not self.sasl_oauthbearer_client_id:
            raise ValueError("sasl_oauthbearer_token_endpoint_url needs sasl_oauthbearer_client_id")
