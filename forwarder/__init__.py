"""The forwarder: the process that moves packets. Only `forwarder.hashing` may be imported by the controller."""
