"""Identity by OpenID Connect: who a token of the organisation's issuer names. joserfc is imported here alone."""
