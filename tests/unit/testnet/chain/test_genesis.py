"""The development accounts are those of every other tool."""

import warnings

from eth_account import Account

from testnet.chain.genesis import MNEMONIC, dev_secrets, dev_signers


def test_accounts_are_the_mnemonics() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Account.enable_unaudited_hdwallet_features()
        for number, (secret, signer) in enumerate(zip(dev_secrets(12), dev_signers(12), strict=True)):
            theirs = Account.from_mnemonic(MNEMONIC, account_path=f"m/44'/60'/0'/0/{number}")
            assert theirs.key == secret
            assert theirs.address.lower() == signer.address


def test_another_mnemonic_gives_other_accounts() -> None:
    other = "legal winner thank year wave sausage worth useful legal winner thank yellow"
    assert dev_signers(1, other)[0].address != dev_signers(1)[0].address
